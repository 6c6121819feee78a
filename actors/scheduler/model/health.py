"""Why health is not green: the one table of codes, and since when each cause stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.scheduler.model.records import HealthReason
from tocsin.errors import StoreCorrupt, StoreError

GREEN: Final = "green"
AMBER: Final = "amber"
RED: Final = "red"

ORIGIN_UNREACHABLE: Final = "ORIGIN_UNREACHABLE"
ORIGIN_NOT_CONFIGURED: Final = "ORIGIN_NOT_CONFIGURED"
ORIGIN_COOLING: Final = "ORIGIN_COOLING"
AUTHORIZE_FIRE_FAILING: Final = "AUTHORIZE_FIRE_FAILING"
ALARM_FAILING: Final = "ALARM_FAILING"
HOST_STOPPING: Final = "HOST_STOPPING"
CALLBACKS_FAILING: Final = "CALLBACKS_FAILING"
HOOK_FAILING: Final = "HOOK_FAILING"
DEAD_LETTERS: Final = "DEAD_LETTERS"
SUSPECTS_WAITING: Final = "SUSPECTS_WAITING"
DAMAGED_ROWS: Final = "DAMAGED_ROWS"
HOLDER_ABSENT: Final = "HOLDER_ABSENT"
JOBS_STUCK: Final = "JOBS_STUCK"
JOBS_LATE: Final = "JOBS_LATE"
QUEUE_LATE: Final = "QUEUE_LATE"
LEASES_OVER: Final = "LEASES_OVER"
JOBS_DYING: Final = "JOBS_DYING"
ATTEMPTS_LOST: Final = "ATTEMPTS_LOST"
DEAD_GROWING: Final = "DEAD_GROWING"
LOOP_LAGS: Final = "LOOP_LAGS"
WAL_LONG: Final = "WAL_LONG"
CONNECTIONS_FULL: Final = "CONNECTIONS_FULL"
BODIES_FULL: Final = "BODIES_FULL"
CLOCK_OFF: Final = "CLOCK_OFF"
SLOTS_UNOWNED: Final = "SLOTS_UNOWNED"
MAIL_LATE: Final = "MAIL_LATE"
INSTANCE_MOVING: Final = "INSTANCE_MOVING"
INSTANCE_MOVED: Final = "INSTANCE_MOVED"

LEVELS: Final[Mapping[str, str]] = {
    HOLDER_ABSENT: RED,
    ORIGIN_UNREACHABLE: RED,
    ORIGIN_NOT_CONFIGURED: RED,
    AUTHORIZE_FIRE_FAILING: RED,
    "STORE_FULL": RED,
    "STORE_UNAVAILABLE": RED,
    "STORE_REPLACED": RED,
    "STORE_CORRUPT": RED,
    ALARM_FAILING: RED,
    HOST_STOPPING: RED,
    JOBS_STUCK: RED,
    LEASES_OVER: RED,
    JOBS_DYING: RED,
    SLOTS_UNOWNED: RED,
    ORIGIN_COOLING: AMBER,
    CALLBACKS_FAILING: AMBER,
    HOOK_FAILING: AMBER,
    DEAD_LETTERS: AMBER,
    SUSPECTS_WAITING: AMBER,
    DAMAGED_ROWS: AMBER,
    JOBS_LATE: AMBER,
    ATTEMPTS_LOST: AMBER,
    QUEUE_LATE: AMBER,
    DEAD_GROWING: AMBER,
    LOOP_LAGS: AMBER,
    WAL_LONG: AMBER,
    CONNECTIONS_FULL: AMBER,
    BODIES_FULL: AMBER,
    CLOCK_OFF: AMBER,
    MAIL_LATE: AMBER,
    INSTANCE_MOVING: AMBER,
    INSTANCE_MOVED: AMBER,
}
"""Every code, and the level of health while its cause stands. `docs/operating.md` explains them."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something is wrong just now. `since`, epoch ms, if whoever found it knows."""

    code: str
    message: str
    since: int | None = None


class Health:
    """Remembers since when causes stand that do not know it themselves."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._since: dict[str, dict[str, int]] = {}

    def reasons(self, scope: str, causes: Sequence[Cause]) -> Sequence[HealthReason]:
        """List what is wrong in one scope now, the worst first. A cause that was named earlier and is not named now is
        over."""
        now, before = self._now_ms(), self._since.pop(scope, {})
        known = {one.code: before.get(one.code, now) if one.since is None else one.since for one in causes}
        if known:
            self._since[scope] = known
        found = [HealthReason(one.code, one.message, known[one.code]) for one in causes]
        return in_order(found)


def in_order(reasons: Iterable[HealthReason]) -> Sequence[HealthReason]:
    """Return them with the worst first."""
    return tuple(sorted(reasons, key=lambda one: (_level(one.code) != RED, one.since, one.code)))


def level(reasons: Iterable[HealthReason]) -> str:
    """Return the worst level of these reasons."""
    levels = {_level(one.code) for one in reasons}
    return next((worst for worst in (RED, AMBER) if worst in levels), GREEN)


def _level(code: str) -> str:
    return LEVELS.get(code, RED)


def code_of(trouble: StoreError) -> str:
    """Return the code of a store's trouble."""
    if isinstance(trouble, StoreCorrupt):
        return "STORE_CORRUPT"
    return "STORE_REPLACED" if trouble.owner_lost else trouble.code
