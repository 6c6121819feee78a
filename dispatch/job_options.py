"""The options of a job: what callers may give, and what handlers and records show of them.

A new option is one member here, and one in each of: the rows (`JobRow`, `DefinitionRow`), the checks (`validation`),
the requests (`http/wire_jobs`), and the command line (`cli/job_options`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, TypedDict

import msgspec

from tocsin.dispatch.durations import Duration
from tocsin.dispatch.plain import Plain
from tocsin.dispatch.rate import Rate, rate_of
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.words import PYTHON, camel


class SharedOptions(TypedDict, total=False):
    """Options of both jobs and schedules in Python; occurrences and jobs of a `then` have them too."""

    queue: str | None
    pool: str | None
    max_concurrency: int | None
    priority: int | None
    labels: Sequence[str] | None
    shard_key: str | None
    retry: Retry | None
    timeout_ms: int | None
    initiator: str | None
    origin: str | None
    rate: Rate | None
    url: str | None


class OneJobOptions(SharedOptions, total=False):
    """Options of a single job besides `then`, `on_dead` and `group`."""

    id: str | None
    on_conflict: str
    expires_at: datetime | int | None
    keep_result: Duration | None
    max_wait: Duration | None
    throttle: Duration | None
    on_throttle: str


EXTRAS: Final = ("origin", "rate", "url")
"""Options that few have: rows keep them apart, in `extras`."""
LOCAL: Final = frozenset({"initiator"})
"""Options that requests do not hold: over HTTP the token says who asks."""
MEMBERS: Final = {
    **{name: camel(name) for name in OneJobOptions.__annotations__ if name not in LOCAL},
    "keep_result": "keepResultMs",
    "max_wait": "maxWaitMs",
    "throttle": "throttleMs",
    "then": "then",
    "on_dead": "onDead",
    "group": "group",
}
"""JSON names of the options of Python callers."""
PYTHON_WORDS: Final = {**{json: name for name, json in MEMBERS.items() if name != json}, **PYTHON}
"""Python names of fields in a server's messages."""


# ---- What values show of them --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """The options that handlers see: a callback carries them."""

    pool: str | None = None
    shard_key: str | None = None
    labels: tuple[str, ...] = ()


class HandlerMembers(Plain, msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The same in JSON."""

    pool: str | None = None
    shard_key: str | None = None
    labels: tuple[str, ...] = ()


class ShownMembers(HandlerMembers, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Further members of claimed jobs and of the records of jobs and schedules."""

    priority: int = 0
    retry: Retry | None = None
    timeout_ms: int | None = None


class RecordMembers(ShownMembers, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Members of the records of jobs and schedules only."""

    queue: str | None = None
    max_concurrency: int | None = None
    origin: str | None = None
    rate: Rate | None = None
    url: str | None = None


class OptionsOfJob(ABC):
    """The options that handlers see, as attributes of what has a job."""

    __slots__ = ()

    @property
    @abstractmethod
    def job(self) -> HandlerMembers:
        """Return the job that has them."""

    @property
    def pool(self) -> str | None:
        return self.job.pool

    @property
    def shard_key(self) -> str | None:
        return self.job.shard_key

    @property
    def labels(self) -> Sequence[str]:
        return self.job.labels


HANDLER_OPTIONS: Final = HandlerMembers.__struct_fields__
handler_values: Final = attrgetter(*HANDLER_OPTIONS)
"""Reads the options that handlers see, in the order of `HANDLER_OPTIONS`, from a value with None for those left out."""


def extra_of(extras: Any, name: str) -> Any:
    """Return an option that few jobs have, from what their rows hold of it; None if it was not given."""
    if name == "origin" and extras.url is not None:
        return None  # rows of jobs with a URL hold one that nobody names
    value = getattr(extras, name)
    return rate_of(value) if name == "rate" else value or None


def _reader(kind: type[HandlerMembers]) -> Callable[[object], dict[str, Any]]:
    """Return what reads the members of `kind` from a row or another value; rows have "" for a name left out."""
    names = [name for name in kind.__struct_fields__ if name not in EXTRAS]
    values, texts = attrgetter(*names), [name for name in ("pool", "queue") if name in names]
    extras = [name for name in EXTRAS if name in kind.__struct_fields__]

    def read(one: Any) -> dict[str, Any]:
        found = dict(zip(names, values(one), strict=True))
        for name in texts:
            found[name] = found[name] or None
        if extras and one.extras is not None:
            found.update((name, extra_of(one.extras, name)) for name in extras)
        return found

    return read


def place_in(extras: Any) -> dict[str, str | None]:
    """Return the origin and the URL that were asked for, of the `extras` of a row or None."""
    return {} if extras is None else {name: extra_of(extras, name) for name in ("origin", "url")}


handler_options: Final = _reader(HandlerMembers)
shown_options: Final = _reader(ShownMembers)
record_options: Final = _reader(RecordMembers)
