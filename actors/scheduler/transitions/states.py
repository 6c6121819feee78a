"""Say what may become of a job: its states, and what each event and each operation makes of it in each of them.

Tests try every cell of both tables. `python -m scripts.states` writes them into docs/states.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

STATES: Final = ("pending", "waiting", "running", "accepted", "unknown", "pulled", "dead", "gone")
"""Those from `running` to `pulled` are the kinds of leases; `get` and `list` call them all `running`."""

EVENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "due": {"pending": "waiting"},
    "moved": {"pending": "pending", "waiting": "pending"},
    "replaced": {"pending": "gone", "waiting": "gone"},
    "claimed": {"waiting": "running"},
    "claimed by a worker": {"waiting": "pulled"},
    "expired": {"pending": "gone", "waiting": "gone"},
    "done": {"running": "gone"},
    "accepted": {"running": "accepted"},
    "failed": {"running": "pending"},
    "failed, no retry left": {"running": "dead"},
    "declined": {"running": "pending"},
    "busy": {"running": "pending"},
    "refused": {"running": "dead"},
    "no answer in time": {"running": "unknown"},
    "blocked": {"running": "dead"},
    "unreachable": {"running": "pending"},
    "host stopped": {"running": "unknown"},
    "completed": {"running": "gone", "accepted": "gone", "unknown": "gone", "pulled": "gone"},
    "completed as failed": {"running": "pending", "accepted": "pending", "unknown": "pending", "pulled": "pending"},
    "completed as refused": {"running": "dead", "accepted": "dead", "unknown": "dead", "pulled": "dead"},
    "renewed": {"running": "running"},
    "extended": {"running": "running", "accepted": "accepted", "pulled": "pulled"},
    "lease ended": {"running": "waiting", "accepted": "pending", "unknown": "pending", "pulled": "waiting"},
    "lease ended, no retry left": {"accepted": "dead", "unknown": "dead"},
    "lease ended, fifth loss": {"running": "dead", "pulled": "dead"},
    "done, after its lease ended": {"pending": "gone", "waiting": "gone"},
    "never sent": {"running": "waiting", "pulled": "waiting"},
    "cancelled": dict.fromkeys(("pending", "waiting", "running", "accepted", "unknown", "pulled"), "gone"),
    "retried": {"dead": "waiting"},
    "removed": {"dead": "gone"},
    "too old": {"dead": "gone"},
}
"""From state to state. An event that is not listed for a state changes nothing there. The attempt of a cancelled job,
which is gone, may be renewed; its end drops the lease."""

_RUNNING: Final = ("409 running",) * 4
_NOT_HELD: Final = "409 stale"
OPERATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "schedule, error": ("409 pending", "409 pending", *_RUNNING, "409 dead", "made"),
    "schedule, keep": ("kept pending", "kept pending", *("kept running",) * 4, "409 dead", "made"),
    "schedule, replace": ("swapped", "swapped", *_RUNNING, "409 dead", "made"),
    "cancel": ("cancelled", "cancelled", *("cancelled, was running",) * 4, "no", "no"),
    "reschedule": ("moved", "moved", *("no, is running",) * 4, "no", "no"),
    "dead_retry": (*("no",) * 6, "due now", "no"),
    "dead_cancel": (*("no",) * 6, "removed", "no"),
    "free_slot": ("no", "no", "409 runs", "retrying", "retrying", "409 runs", "no", "no"),
    "complete": (_NOT_HELD, _NOT_HELD, *("done",) * 4, _NOT_HELD, _NOT_HELD),
    "extend": (_NOT_HELD, _NOT_HELD, "extended", "extended", _NOT_HELD, "extended", _NOT_HELD, _NOT_HELD),
    "why": ("NOT_DUE", "POOL_PAUSED", *("RUNNING",) * 4, "DEAD", "NOT_FOUND"),
}
"""Answers of an operation in each of the states, in their order."""
