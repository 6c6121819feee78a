"""The reference of the command line: each command with its options, made of the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import Final

import click

from tocsin.cli import main

PAGE: Final = "reference/command-line.md"


def pages() -> dict[str, str]:
    """Return the page by its path inside the site."""
    head = (
        "# Options of each command", "",
        "All commands with all their options. [The command line](../cli.md) explains them, with examples, exit codes",
        "and the environment.", "",
    )  # fmt: skip
    with click.Context(main, info_name="tocsin") as context:
        body = [line for name, command in commands(main, context, "tocsin") for line in entry(name, command)]
    return {PAGE: "\n".join([*head, *body]).rstrip() + "\n"}


def commands(group: click.Group, context: click.Context, prefix: str) -> Iterator[tuple[str, click.Command]]:
    """Walk the tree of commands, in the order in which help lists them."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from commands(command, context, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def entry(name: str, command: click.Command) -> Iterator[str]:
    """Write one command: how it is called, what it does, its options."""
    context = click.Context(command, info_name=name)
    yield from (f"## {name}", "", "```text", " ".join([name, *command.collect_usage_pieces(context)]), "```", "")
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        yield from paragraph_of(paragraph)
    rows = [row(option) for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if rows:
        yield from ("| option | value | default | what it is |", "|---|---|---|---|", *rows, "")


def paragraph_of(text: str) -> Iterator[str]:
    """Write a paragraph of help; one that click keeps as it is becomes a block."""
    kept = text.strip("\n").removeprefix("\b\n")
    if kept != text.strip("\n"):
        yield from ("```text", kept, "```", "")
    else:
        yield from (text.strip(), "")


def row(option: click.Option) -> str:
    """Write one option as a row of a table."""
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f"`{option.make_metavar(click.Context(click.Command('tocsin')))}`"
    given = isinstance(option.default, str | int | float) and not option.is_flag
    default = "required" if option.required else f"`{option.default}`" if given else ""
    cells = (flags, value.replace("|", r"\|"), default, " ".join((option.help or "").split()).replace("|", r"\|"))
    return "| " + " | ".join(cells) + " |"
