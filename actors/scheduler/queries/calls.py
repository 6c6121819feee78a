"""Say of a job what further calls of its id do to it."""

from __future__ import annotations

from tocsin.actors.scheduler.model.records import Reason, Record
from tocsin.dispatch.durations import span


def _when(ms: int) -> str:
    return f"in {span(ms)}" if ms > 0 else "by now"


def put_off(record: Record, now: int) -> list[Reason]:
    """Say that further calls put the job off, and until when; or that one is kept until its run has ended."""
    how = record.put_off
    if how is None:
        return []
    if how.next_due is not None:
        said = "a newer call of its id is kept: it becomes the job when this run has ended"
        return [Reason("CALL_KEPT", f"{said}, and is due {_when(how.next_due - now)}")]
    if record.state != "pending" or record.attempt:
        return []
    until = "" if how.until is None else f", at most for another {span(max(how.until - now, 0))}"
    return [Reason("PUT_OFF", f"each further call of its id puts it off{until}", how.until, since=how.first_at)]
