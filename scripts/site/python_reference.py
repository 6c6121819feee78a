"""Pages of the Python reference: public names with their signatures and docstrings, as the source has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import griffe

import tocsin

ROOT: Final = Path(__file__).parents[2]
WIDTH: Final = 100
"""Signatures longer than this are written one parameter a line."""


@dataclass(frozen=True, slots=True)
class Group:
    """A page of the reference, and the modules whose public names stand on it."""

    slug: str
    title: str
    said: str
    modules: tuple[str, ...]


GROUPS: Final = (
    Group(
        "python-receivers", "Receivers and workers",
        "What runs your handlers: the receiver of callbacks, the worker of queues.",
        ("tocsin.dispatch.receiver", "tocsin.dispatch.worker", "tocsin.dispatch.pulled", "tocsin.dispatch.signing",
         "tocsin.dispatch.catalog"),
    ),
    Group(
        "python-clients", "Clients", "The handles of a server's schedulers, async and blocking.",
        ("tocsin.actors.client",),
    ),
    Group("python-outbox", "Outbox", "Jobs in your own database transactions.", ("tocsin.actors.outbox",)),
    Group(
        "python-actors", "Actors and stores", "Your own actors, and the stores that keep them.",
        ("tocsin.actors.runtime", "tocsin.storage"),
    ),
    Group(
        "python-results", "Results", "What the methods of a scheduler return.",
        ("tocsin.actors.scheduler.model", "tocsin.actors.scheduler.inflight"),
    ),
    Group("python-errors", "Errors", "One hierarchy; every error has a code.", ("tocsin.errors",)),
    Group("python-testing", "tocsin.testing", "Test support, for your app and for tocsin itself.", ("tocsin.testing",)),
    Group(
        "python", "Hosts and schedulers",
        "Open a store, hold a scheduler, make jobs, recurring jobs and chains.", ("tocsin",),
    ),
)  # fmt: skip
"""Tried in this order: the last takes every name that no other took."""
OF_OPTIONS: Final = "tocsin.actors.scheduler.client.job_checks.JobOptions"
"""Not a public name, but the keyword arguments of `run_at`, `run_after` and `Job(options=…)`."""

MADE_BY_OTHERS: Final = {
    "ActorHost",
    "Scheduler",
    "Schedules",
    "Deferred",
    "Context",
    "Task",
    "PoolHandle",
    "Stub",
    "ActorContext",
}
"""Classes whose instances users are given: how those are made is no concern of theirs."""


def pages() -> dict[str, str]:
    """Return each page of the reference by its path inside the site."""
    found: dict[str, list[str]] = {group.slug: [] for group in GROUPS}
    for name, one in public_objects():
        found[group_of(one).slug].extend(entry(name, one))
    texts = {}
    for group in GROUPS:
        head = [f"# {group.title}", "", group.said, ""]
        texts[f"reference/{group.slug}.md"] = "\n".join([*head, *found[group.slug]]).rstrip() + "\n"
    return texts


def public_objects() -> Iterator[tuple[str, griffe.Object]]:
    """Walk the public names: those of `tocsin`, of `tocsin.testing`, and all errors."""
    package = griffe.load("tocsin", search_paths=[ROOT / "src"], resolve_aliases=True)
    for name in tocsin.__all__:
        yield name, resolved(package[name])
    yield "JobOptions", resolved(package[OF_OPTIONS.removeprefix("tocsin.")])
    for module in ("testing", "errors"):
        for name in public_in(package[module]):
            if name not in tocsin.__all__:
                yield f"tocsin.{module}.{name}", resolved(package[module][name])


def public_in(module: griffe.Object) -> list[str]:
    """Return what a module exports, or else its own classes."""
    if module.exports is not None:
        return [str(name) for name in module.exports]
    return [name for name, member in module.members.items() if not member.is_alias and member.is_class]


def resolved(member: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return what a name stands for."""
    return member.final_target if isinstance(member, griffe.Alias) else member


def group_of(one: griffe.Object) -> Group:
    """Return the page on which an object stands."""
    home = "tocsin.testing" if ".testing" in one.path else one.path
    return next(group for group in GROUPS if any(home.startswith(f"{module}.") or home == module
                                                 for module in group.modules))  # fmt: skip


def entry(name: str, one: griffe.Object) -> Iterator[str]:
    """Write a public name: a heading, its signature, its docstring, its members."""
    yield from (f"## {name}", "")
    if isinstance(one, griffe.Function):
        yield from signature(name.rpartition(".")[2], one)
    elif isinstance(one, griffe.Class):
        yield from class_head(name.rpartition(".")[2], one)
    yield from said(one)
    if isinstance(one, griffe.Class):
        yield from fields(one)
        for member_name, member in members(one):
            yield from (f"### {name.rpartition('.')[2]}.{member_name}", "")
            if isinstance(member, griffe.Function):
                yield from signature(member_name, member)
            yield from said(member)


def class_head(name: str, one: griffe.Class) -> Iterator[str]:
    """Write how an instance is made, or what the class derives from if it is not called."""
    bases = ", ".join(str(base) for base in one.bases if str(base) not in {"Value", "object"})
    if bases:
        yield from (f"Bases: `{bases}`", "")
    if is_error(one):
        known = {base.name: base for base in (*reversed(one.mro()), one)}
        values = {
            key: own.value
            for base in known.values()
            for key, own in base.members.items()
            if isinstance(own, griffe.Attribute)
        }
        yield from (f"Code `{values['code']}`, status {values['status']}.".replace("'", ""), "")
        return
    made = one.members.get("__init__")
    if isinstance(made, griffe.Function) and name not in MADE_BY_OTHERS:
        yield from signature(name, made)
        if made.docstring is not None:
            yield from (made.docstring.value, "")


def is_error(one: griffe.Object) -> bool:
    """Return whether an object is a class of the hierarchy of errors."""
    return isinstance(one, griffe.Class) and any(
        "code" in base.members and base.name == "TocsinError" for base in (*one.mro(), one)
    )


def members(one: griffe.Class) -> list[tuple[str, griffe.Object]]:
    """Return public methods and properties, those of our own base classes included."""
    found: dict[str, griffe.Object] = {}
    for base in (*reversed(one.mro()), one):
        for name, member in base.members.items():
            target = resolved(member)
            if name.startswith("_") or not isinstance(target, griffe.Function | griffe.Attribute):
                continue
            if isinstance(target, griffe.Function) or "property" in target.labels:
                found[name] = target
    return list(found.items())


def fields(one: griffe.Class) -> Iterator[str]:
    """Write the fields of a struct or a TypedDict as a table."""
    rows: list[str] = []
    if is_error(one):
        return
    for base in (*reversed(one.mro()), one):
        for name, member in base.members.items():
            if name.startswith("_") or not isinstance(member, griffe.Attribute) or "property" in member.labels:
                continue
            if member.annotation is None or ("class-attribute" not in member.labels and member.value is not None):
                continue  # no field, or one that a method sets
            about = " ".join(member.docstring.value.split()) if member.docstring else ""
            value = f"`{member.value}`" if member.value is not None else ""
            rows.append(
                f"| `{name}` | {code(str(member.annotation))} | {value} | {about.replace('|', chr(92) + '|')} |"
            )
    if rows:
        yield from ("| field | type | default | what it is |", "|---|---|---|---|", *rows, "")


def code(text: str) -> str:
    """Write a type in a cell of a table, whose columns `|` would split."""
    return f"`{text}`".replace("|", r"\|")


def signature(name: str, one: griffe.Function) -> Iterator[str]:
    """Write a signature as Python has it, without `self`."""
    parts, star = [], False
    for part in one.parameters:
        if part.name in {"self", "cls"}:
            continue
        kind = part.kind
        if kind is griffe.ParameterKind.keyword_only and not star:
            parts.append("*")
            star = True
        star = star or kind is griffe.ParameterKind.var_positional
        mark = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(kind, "")
        typed = f": {part.annotation}" if part.annotation is not None else ""
        default = f" = {part.default}" if part.default is not None and not mark else ""
        parts.append(f"{mark}{part.name}{typed}{default}")
    prefix = "async " if "async" in one.labels else ""
    answers = f" -> {one.returns}" if one.returns is not None and name != "__init__" and one.name != "__init__" else ""
    short = f"{prefix}{name}({', '.join(parts)}){answers}"
    lines = [f"{prefix}{name}(", *(f"    {part}," for part in parts), f"){answers}"]
    yield from ("```python", *([short] if len(short) <= WIDTH else lines), "```", "")


def said(one: griffe.Object) -> Iterator[str]:
    """Write a docstring; its sections are prose already."""
    if one.docstring is not None:
        yield from (tree_as_code(one.docstring.value), "")


def tree_as_code(text: str) -> str:
    """Return a docstring with what is drawn in it (indented lines) as a block."""
    return "\n".join(f"    {line}" if line.startswith("  ") else line for line in text.splitlines())
