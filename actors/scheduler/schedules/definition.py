"""A schedule as callers define it, checked at the call: every refusal names the argument, the value and the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tocsin.actors.cron.zones import Zone
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.followers import Follower, check_then, extras_before, without_ids
from tocsin.actors.scheduler.model.rows import INLINE_ARGS
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.actors.scheduler.schedules.series import rule_of
from tocsin.dispatch.instants import show
from tocsin.dispatch.words import word
from tocsin.errors import InvalidInputError, PayloadTooLargeError

MISFIRES: Final = ("skip", "one", "all")
OVERLAPS: Final = ("skip", "queue", "allow")
EVERY_MS: Final = (1_000, 10 * 366 * 86_400_000)
GRACE_MS: Final = (0, 366 * 86_400_000)
CATCH_UP: Final = (1, 1_000)
JITTER_MS: Final = (0, 86_400_000)
REVISION: Final = (0, 2**53)
MAX_THEN: Final = 16 * 1024
"""Bytes of what follows each occurrence: it stands in the row of the definition."""
MAX_SET: Final = 1_000
"""Schedules in one registration."""


def schedule_name(value: object) -> str:
    if not isinstance(value, str) or not arguments.INSTANCE.fullmatch(value):
        raise InvalidInputError(f"a schedule's name must match {arguments.INSTANCE.pattern}, not {show(value)}")
    return value


def new_schedule(
    name: object,
    *,
    args: bytes = b"{}",
    paused: object = None,
    revision: object = None,
    owner: str | None = None,
    initiator: tuple[str, str] = ("", ""),
    given: Mapping[str, Any],
) -> NewSchedule:
    """`given` has the fields of DefinitionRow that callers may set; None means the default, but for `catch_up_limit`,
    where it means all."""
    checked_name = schedule_name(name)
    known = {key: value for key, value in given.items() if value is not None or key == "catch_up_limit"}
    inline, rest = args[:INLINE_ARGS], range(INLINE_ARGS, len(args), INLINE_ARGS)
    definition = DefinitionRow(
        uid="", created_at=0, anchor=0, args=inline, args_rows=len(rest), owner=owner, initiator=initiator,
        **_rule(known), **_target(known), **_options(known), **_policies(known),
    )  # fmt: skip
    return NewSchedule(
        checked_name,
        definition,
        [args[n : n + INLINE_ARGS] for n in rest],
        _flag(paused, "paused"),
        None if revision is None else arguments.integer(revision, "revision", *REVISION),
    )


def _rule(known: Mapping[str, Any]) -> dict[str, Any]:
    rules = [name for name in ("cron", "every_ms", "at") if name in known]
    if len(rules) != 1:
        raise InvalidInputError(f"give exactly one of cron, {word('every')} and at")
    timezone = known.get("timezone", "UTC")
    if rules[0] == "cron":
        rule = rule_of(known["cron"], timezone)
        return {"cron": rule.expression.text, "timezone": rule.zone.name}
    zone = Zone(timezone).name
    if rules[0] == "at":
        return {"at": arguments.instant_ms(known["at"], "at"), "timezone": zone}
    return {"every_ms": arguments.integer(known["every_ms"], word("every_ms"), *EVERY_MS), "timezone": zone}


def _target(known: Mapping[str, Any]) -> dict[str, Any]:
    path, workflow = known.get("function_path"), known.get("workflow")
    if (path is None) == (workflow is None):
        raise InvalidInputError(f"give exactly one of {word('function_path')} and workflow")
    if path is not None:
        return {"function_path": arguments.target(path, word("function_path"))}
    return {"workflow": arguments.target(workflow, "workflow")}


def _options(known: Mapping[str, Any]) -> dict[str, Any]:
    then, on_dead = check_then(known.get("then", ()), known.get("on_dead", ())), tuple(known.get("on_dead", ()))
    options = {
        **arguments.checked_options(known),
        "then": _stored(then, "then"),
        "on_dead": _stored(on_dead, word("on_dead")),
    }
    if "extras" not in options:
        options["extras"] = extras_before(then, on_dead)
    if "expires_after_ms" in known:
        options["expires_after_ms"] = arguments.integer(known["expires_after_ms"], word("expires_after_ms"), *EVERY_MS)
    return options


def _stored(followers: tuple[Follower, ...], name: str) -> bytes:
    text = without_ids(followers)
    if len(text) > MAX_THEN:
        raise PayloadTooLargeError(
            f"{name}: {len(text)} bytes with its args, at most {MAX_THEN} in a schedule", limit=MAX_THEN
        )
    return text


def _policies(known: Mapping[str, Any]) -> dict[str, Any]:
    limit = known.get("catch_up_limit", 100)
    return {
        "misfire": _choice(known.get("misfire", "one"), "misfire", MISFIRES),
        "overlap": _choice(known.get("overlap", "skip"), "overlap", OVERLAPS),
        "grace_ms": arguments.integer(known.get("grace_ms", 60_000), word("grace_ms"), *GRACE_MS),
        "catch_up_limit": None if limit is None else arguments.integer(limit, word("catch_up_limit"), *CATCH_UP),
        "jitter_ms": arguments.integer(known.get("jitter_ms", 0), word("jitter_ms"), *JITTER_MS),
    }


def _choice(value: object, field: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise InvalidInputError(f"{field} must be one of {', '.join(choices)}, not {show(value)}")
    assert isinstance(value, str)
    return value


def _flag(value: object, field: str) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise InvalidInputError(f"{field} must be true or false, not {show(value)}")
    return value
