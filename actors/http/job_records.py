"""Jobs as they are answered over HTTP: as callers in Python get them, with what the older system's client reads."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec

from tocsin.actors.scheduler.model.records import Page, Record
from tocsin.actors.scheduler.model.retry_in_force import RetryInForce, in_force
from tocsin.dispatch.pulled import raw_member


class JobRecord(Record, frozen=True, kw_only=True, rename=raw_member, omit_defaults=True):
    """A job. `state` is `pending` (not yet due), `waiting` (due, for a lane or a slot), `running` or `dead`.

    All instants are epoch ms. `attempt` counts dispatches, `attempts` charged failures. Dead ones have no next
    attempt, but `reason`, `parked_at`, `last_status` and `last_response` (the first 2 KiB). `args_damaged`: its args
    were damaged in the store, and are left out. `retry` is there if it was asked for.
    """

    instance_name: str
    retry: RetryInForce | None = None  # type: ignore[assignment]


class JobPage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A page of jobs; `cursor` asks for the next one and is there when `truncated` is true."""

    records: Sequence[JobRecord]
    truncated: bool
    cursor: str | None = None


_NAMES: Final = tuple(name for name in Record.__struct_fields__ if name != "retry")
_values: Final = attrgetter(*_NAMES)


def record_of(record: Record, instance: str) -> JobRecord:
    """As it is answered."""
    members: dict[str, Any] = dict(zip(_NAMES, _values(record), strict=True))
    return JobRecord(**members, instance_name=instance, retry=None if record.retry is None else in_force(record.retry))


def page_of(page: Page, instance: str) -> JobPage:
    """As it is answered."""
    return JobPage([record_of(one, instance) for one in page.records], page.truncated, page.cursor)
