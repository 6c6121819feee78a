"""The options of jobs and schedules: how they are typed, sent and shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tocsin.cli.output import span
from tocsin.cli.rates import rate_of, rate_words
from tocsin.cli.times import optional_duration

F = TypeVar("F", bound=Callable[..., Any])


def as_given(value: Any, flag: str) -> Any:
    return value


def listed(value: Any, flag: str) -> Any:
    return list(value) or None


def then_of(given: str | None, flag: str) -> Any:
    """Parse one job or a list of jobs."""
    if given is None:
        return None
    raw = json_of(given, flag)
    return [raw] if bytes(raw).lstrip()[:1] == b"{" else raw


def json_of(given: str, option: str = "--args") -> Any:
    """Return the text unchanged after checking that it is JSON, so that numbers and order stay the user's."""
    import msgspec

    from tocsin.dispatch.surrogates import in_json

    try:
        if given == "-":
            raw = sys.stdin.buffer.read()
        elif given.startswith("@"):
            raw = Path(given[1:]).read_bytes()
        else:
            raw = given.encode()
        msgspec.json.decode(raw)
    except OSError as error:
        raise click.UsageError(f"{option}: {given[1:]} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        half = in_json(raw) if isinstance(error, msgspec.DecodeError) else None
        raise click.UsageError(f"{option}: {half}" if half else f"{option} is not JSON: {error}") from None
    return msgspec.Raw(raw)


def text_of(given: str, option: str) -> bytes:
    """Return what a file holds, or stdin for `-`."""
    try:
        return sys.stdin.buffer.read() if given == "-" else Path(given).read_bytes()
    except OSError as error:
        raise click.UsageError(f"{option}: {given} cannot be read: {error.strerror}") from None


def compact(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {each}" for name, each in value.items())


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its flag, its member in requests and records, and the conversions between them."""

    member: str
    flag: str
    help: str
    read: Callable[[Any, str], Any] = as_given
    title: str = ""
    """Name of the member in a record; "" if it is not shown."""
    show: Callable[[Any], object] = lambda value: value
    typed: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments for click."""

    @property
    def parameter(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")


NAME: Final = {"metavar": "NAME"}
NUMBER: Final = {"type": int, "metavar": "N"}
DURATION: Final = {"metavar": "DURATION"}
SHARE: Final = {"type": float, "metavar": "SHARE"}
BACKOFFS: Final = ("exponential", "linear")
OPTIONS: Final = (
    Option("queue", "--queue", "A worker pulls it from there; no callback.", title="queue", typed=NAME),
    Option("pool", "--pool", "Share a cap on how many run at once.", title="pool", typed=NAME),
    Option("maxConcurrency", "--max-concurrency", "The pool's cap.", typed=NUMBER),
    Option("rate", "--rate", "The pool's rate: 100/1m.", rate_of, "rate", rate_words, {"metavar": "N/TIME"}),
    Option("priority", "--priority", "-9..9; 9 is most urgent.", title="priority", typed=NUMBER),
    Option("labels", "--label", "May be repeated.", listed, "labels", ", ".join, {"multiple": True}),
    Option("origin", "--origin", "The server's named origin to call back.", title="origin", typed=NAME),
    Option("url", "--callback-url", "A URL of the server's list to call back.", title="url", typed={"metavar": "URL"}),
    Option("shardKey", "--shard-key", "Rides along to the receiver.", title="shard key"),
    Option("retry", "", "", title="retry", show=compact),
    Option("retry.maxRetries", "--max-retries", "Tries after the first (default: 5).", typed=NUMBER),
    Option("retry.backoff", "--backoff", "How retry delays grow.", typed={"type": click.Choice(BACKOFFS)}),
    Option("retry.baseMs", "--base", "The first retry's delay (default: 30s).", optional_duration, typed=DURATION),
    Option("retry.maxMs", "--max-delay", "The longest retry delay (default: 1h).", optional_duration, typed=DURATION),
    Option("retry.jitter", "--jitter", "0..1: add up to that share to delays.", typed=SHARE),
    Option(
        "timeoutMs", "--timeout", "Deadline of each callback, 1s to 1h (default: the server's).",
        optional_duration, "timeout", span, DURATION,
    ),
    Option("then", "--then", "Jobs to start when it is done; @FILE reads a file.", then_of, typed={"metavar": "JSON"}),
    Option("onDead", "--on-dead", "Jobs to start when it dies.", then_of, typed={"metavar": "JSON"}),
)  # fmt: skip
RETRY: Final = tuple(one.member.removeprefix("retry.") for one in OPTIONS if one.member.startswith("retry."))
FLAGS: Final = {one.member: (one.flag,) for one in OPTIONS if one.flag}


def job_options(jitter: str) -> Callable[[F], F]:
    """Give a command all job options; `jitter` names the flag for the jitter of retry delays."""

    def decorate(function: F) -> F:
        for one in reversed(OPTIONS):
            if one.flag:
                flag = jitter if one.member == "retry.jitter" else one.flag
                function = click.option(flag, help=one.help, **one.typed)(function)
        return function

    return decorate


def members_of(options: Mapping[str, Any], jitter: str) -> dict[str, Any]:
    """Return the members of a request, None for options not given; `jitter` names the parameter for retry delays."""
    typed = {**options, "jitter": options[jitter]}
    given = {one.member: one.read(typed[one.parameter], one.flag) for one in OPTIONS if one.flag}
    retry = {name: given.pop(f"retry.{name}") for name in RETRY}
    return {**given, "retry": {name: value for name, value in retry.items() if value is not None} or None}


def shown(record: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Return the options of a record as they are shown; None for those it lacks."""
    return [(one.title, one.show(value) if (value := record.get(one.member)) else None) for one in OPTIONS if one.title]
