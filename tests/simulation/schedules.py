"""The promises of schedules, watched at the disk, at the network and at the receiver: every slot that has come is
accounted for exactly once, and none fires twice.

What had come follows from the rules and from how far the cursors moved, commit by commit. What became of it follows
from the rows at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.acts import Acts
from tests.simulation.pulled import Pulled
from tests.simulation.record import Record, RecordedDisk
from tests.simulation.traveller import ACTOR
from tocsin.actors.cron.rule import Rule
from tocsin.actors.scheduler.model.clock import CLOCK, ClockRow
from tocsin.actors.scheduler.model.rows import (
    AtRow,
    JobRow,
    LeaseRow,
    R,
    at_key,
    bucket_prefix,
    dead_key,
    decode,
    job_key,
    split_line_tail,
)
from tocsin.actors.scheduler.model.schedule_rows import CursorRow, DefinitionRow, SlotRow, cursor_key, definition_key
from tocsin.storage.api import after
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.memory import MemoryDisk, SortedMap

if TYPE_CHECKING:
    from tests.simulation.traveller import Traveller

RULE = ("cron", "every_ms", "at", "timezone")
AHEAD_MS = 86_400_000
"""Further ahead of the clock no cursor may stay, and only from there one may go back."""
LATE_MS = 2_000
"""How long after its due a slot may be undecided once the weather is good."""


class Watched:
    """The rows of one scheduler, and its promises."""

    def __init__(self, whole: MemoryDisk, name: str) -> None:
        self.whole, self.name = whole, name
        self.schedules = Schedules(self)
        self.pulled = Pulled(whole.maps, name)
        self.acts = Acts(whole.maps, name)

    @property
    def rows_now(self) -> SortedMap:
        return self.whole.maps.get(self.name) or SortedMap()

    def begins(self, one: ActorWrites) -> Mapping[str, tuple[DefinitionRow | None, CursorRow | None]]:
        """A commit is about to be applied: the schedules that it changes, as they are."""
        names = {key.split(b"/")[1].decode() for key in one.rows if key.startswith((b"cron/", b"cronat/"))}
        self.acts.commit(one.rows)
        self.pulled.commit(one.rows)
        return {name: self.schedule(name) for name in sorted(names)}

    def ends(self, before: Mapping[str, tuple[DefinitionRow | None, CursorRow | None]]) -> None:
        for name, old in before.items():
            self.schedules.moved(name, *old, *self.schedule(name))

    def schedule(self, name: str) -> tuple[DefinitionRow | None, CursorRow | None]:
        return self.row(DefinitionRow, definition_key(name)), self.row(CursorRow, cursor_key(name))

    def row(self, kind: type[R], key: bytes) -> R | None:
        value = self.rows_now.get(key)
        return None if value is None else decode(kind, key, value)

    def rows(self, kind: type[R], prefix: bytes) -> list[tuple[str, R]]:
        rows = self.rows_now.range(prefix, after(prefix), 1_000_000, False)
        return [(key[len(prefix) :].decode(), decode(kind, key, value)) for key, value in rows]


class WatchedDisk(RecordedDisk):
    """Shows each commit to the promises of its scheduler, before and after."""

    def __init__(self, record: Record, names: Sequence[str]) -> None:
        super().__init__(record)
        self.watched = {name: Watched(self, f"scheduler/{name}") for name in names}
        self._by_name = {one.name: one for one in self.watched.values()}
        self.traveller: Traveller | None = None

    def apply(self, writes: Sequence[ActorWrites]) -> None:
        mine = [(self._by_name[one.name], one) for one in writes if one.name in self._by_name]
        before = [(watched, watched.begins(one)) for watched, one in mine]
        moves = self.traveller is not None and any(one.name == ACTOR for one in writes)
        stood = self.maps.get(ACTOR) if moves else None
        clock = None if stood is None or (row := stood.get(CLOCK)) is None else decode(ClockRow, CLOCK, row)
        super().apply(writes)
        if moves and self.traveller is not None:
            self.traveller.moved(clock, self.maps[ACTOR])
        for watched, rows in before:
            watched.ends(rows)
        for watched, one in mine:
            for key, value in one.rows.items():
                if value is not None and key.startswith(b"lease/cron-"):
                    watched.schedules.started(key)


@dataclass(slots=True)
class Ledger:
    """Of one name: the slots that have come."""

    due: set[int] = field(default_factory=set)
    unsure: list[tuple[int, int]] = field(default_factory=list)
    """Where a rule changed in the middle of a commit: slots of either."""
    went_back: bool = False
    """Its cursor was far ahead of the clock and was taken back."""
    made_again: set[int] = field(default_factory=set)
    """Instants of one-time schedules in the past of another that bore the name, whose runs do not stand for them."""
    webhooks: dict[int, set[str]] = field(default_factory=dict)
    delivered: Counter[int] = field(default_factory=Counter)
    exclusive: bool = True
    """Never triggered, never allowed to overlap, no dead one retried."""

    def unsure_of(self, slot: int) -> bool:
        return any(start < slot <= end for start, end in self.unsure)


def _rule_changed(
    old_row: DefinitionRow | None, old: CursorRow | None, new_row: DefinitionRow | None, new: CursorRow
) -> bool:
    """Whether a commit has changed the rule, and perhaps deleted the schedule then."""
    if new_row is None:
        return old is not None and new.revision != old.revision
    return old_row is not None and rule_of(old_row) != rule_of(new_row)


@dataclass(slots=True)
class Schedules:
    """Notes what came of them; `hold` checks at the end."""

    disk: Watched
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    triggered: dict[str, set[str]] = field(default_factory=dict)
    """Webhook ids by job id."""
    broken: list[str] = field(default_factory=list)

    def of(self, name: str) -> Ledger:
        return self.ledgers.setdefault(name, Ledger())

    # ---- At the disk -----------------------------------------------------------------------------

    def moved(
        self,
        name: str,
        old_row: DefinitionRow | None,
        old: CursorRow | None,
        new_row: DefinitionRow | None,
        new: CursorRow | None,
    ) -> None:
        if new is None:
            return
        ledger = self.of(name)
        row = old_row or new_row
        if row is None:  # made and deleted in one commit
            ledger.unsure.append((0, new.last))
            return
        start = old.last if old is not None else 0
        if old_row is None or (new_row is not None and new_row.uid != old_row.uid):
            first = 1 if old is None else old.revision + 1
            if old_row is not None or new_row is None or new.revision != first:  # made, changed, deleted in one commit
                ledger.unsure.append((start, new.last))
                return
            row = new_row
            if row.at is not None and row.at <= start:
                ledger.made_again.add(row.at)
            start = max(start, row.created_at) if row.at is None or row.at > row.created_at else row.at - 1
        if new.last < start:
            if old is None or start - new.last <= AHEAD_MS:
                self.broken.append(f"{name} went back from {start} to {new.last}")
            ledger.went_back = True
            ledger.due = {slot for slot in ledger.due if slot <= new.last or self._job_of(name, slot)}
        elif _rule_changed(old_row, old, new_row, new):
            ledger.unsure.append((start, new.last))
        else:
            ledger.due.update(slots_between(row, start, new.last))

    def started(self, key: bytes) -> None:
        """Where an occurrence starts no earlier one of its schedule still waits for its first attempt."""
        lease, job = self.disk.row(LeaseRow, key), self.disk.row(JobRow, b"job/" + key.split(b"/")[1])
        if lease is None or job is None or job.schedule is None or lease.at.attempt > 1 or lease.at.losses:
            return
        prefix = bucket_prefix(job.pool, job.queue, job.priority)
        for place, _ in self.disk.rows_now.range(prefix, after(prefix), 1_000_000, False):
            due, job_id = split_line_tail(place)
            other = self.disk.row(JobRow, job_key(job_id))
            same = other is not None and other.schedule is not None and other.schedule.uid == job.schedule.uid
            if not same or other is None or other.schedule is None or other.schedule.request is not None:
                continue
            new = self.disk.row(AtRow, at_key(job_id))
            if other.schedule.slot < job.schedule.slot and (new is None or (not new.attempt and new.moved_to is None)):
                self.broken.append(f"{job.id} starts, and {job_id}, which is due at {due}, still waits")

    def _job_of(self, name: str, slot: int) -> bool:
        row = self.disk.row(SlotRow, b"slot/%b/%015d" % (name.encode(), slot))
        return row is not None and (row.job_id is not None or row.state == "queued")

    # ---- At the network and the receiver ---------------------------------------------------------

    def sent(self, content: Mapping[str, Any], webhook_id: str) -> None:
        name, slot = content["schedule"]["name"], content["schedule"]["slot"]
        if content["id"].startswith("run-"):
            ids = self.triggered.setdefault(content["id"], set())
        else:
            ids = self.of(name).webhooks.setdefault(slot, set())
        ids.add(webhook_id)
        assert len(ids) == 1, f"slot {slot} of {name} fires twice: {sorted(ids)}"
        if self.of(name).exclusive:
            live = self._live(name)
            assert len(live) <= 1, f"{name} does not overlap, and {live} live"

    def _live(self, name: str) -> list[str]:
        """Occurrences of the schedule that bears the name now."""
        row = self.disk.row(DefinitionRow, definition_key(name))
        return [
            job_id
            for job_id, job in self.disk.rows(JobRow, b"job/cron-")
            if row is not None and job.schedule is not None and job.schedule.uid == row.uid
            if self.disk.rows_now.get(dead_key("cron-" + job_id)) is None
        ]

    def delivered(self, content: Mapping[str, Any]) -> None:
        if not content["id"].startswith("run-"):
            self.of(content["schedule"]["name"]).delivered[content["schedule"]["slot"]] += 1

    # ---- At the end ------------------------------------------------------------------------------

    def are_on_time(self, now: int) -> None:
        """In good weather nothing that has come is left for long."""
        for name, row in self.disk.rows(DefinitionRow, b"cron/"):
            cursor = self.disk.row(CursorRow, cursor_key(name))
            assert cursor is not None and cursor.error is None
            ahead = cursor.rings_at is not None and cursor.last > now + AHEAD_MS  # what never rings is not looked at
            assert not ahead, f"{name} stands more than a day ahead, at {cursor.last}"
            assert (cursor.skip_to or 0) <= now + AHEAD_MS, f"{name} passes what comes until {cursor.skip_to}"
            until = (cursor.skip_to, cursor.fire_to)
            behind = [each for each in until if each is not None and each <= now]  # the others were before a step back
            assert cursor.paused or not behind, f"{name} has not ended its backlog: {cursor}"
            used = max(cursor.last, cursor.used_to or 0)  # what was decided while the clock was ahead is not again
            left = [] if cursor.paused else slots_between(row, used, now - LATE_MS - row.jitter_ms)
            assert not left, f"{name} stands at {cursor.last}, and slots were due: {left[:3]}"
            starts = cursor.paused or (cursor.rings_at is not None and cursor.rings_at <= now)
            assert cursor.queued is None or cursor.live or starts, f"{name} holds back {cursor.queued} for nobody"

    def hold(self) -> None:
        """Fired, skipped, coalesced, expired, cancelled and dead ones are what was due, each once."""
        assert self.broken == [], self.broken
        for name in self.ledgers:
            self._accounts(name)

    def _accounts(self, name: str) -> None:
        ledger, cursor = self.ledgers[name], self.disk.row(CursorRow, cursor_key(name))
        if cursor is None:
            assert not ledger.due, f"{name} has no cursor any more"
            return
        rows = self.disk.rows(SlotRow, b"slot/%b/" % name.encode())
        runs = [(int(key), row) for key, row in rows if row.until is not None]
        single = {int(key): row for key, row in rows if row.until is None and row.request is None}
        stood_for = [(row.first_slot or slot, slot) for slot, row in single.items() if row.job_id is not None]
        for slot, row in single.items():
            assert slot in ledger.due or ledger.unsure_of(slot), f"{name}: {slot} is no slot, and ended as {row.state}"
            assert row.state != "queued", f"{name}: {slot} is held back, and nothing lives any more"
            fired = ledger.delivered[slot]
            if row.state == "fired" and not self.lives(row):
                assert fired, f"{name}: {slot} says fired, and nothing came"
            if row.state in ("skipped", "coalesced"):
                assert not fired, f"{name}: {slot} came, and says {row.state} ({row.reason})"
        for slot in ledger.due:
            covering = [first for first, row in runs if first <= slot <= (row.until or 0)]
            counted = cursor.fire_to is not None and cursor.last < slot <= cursor.fire_to  # is to fire
            if slot in single and (ledger.went_back or slot in ledger.made_again):
                covering = []  # a run does not stand for those that have a row of their own
            ends = len(covering) + counted + (slot in single)
            assert ends == 1 or (ends and ledger.unsure_of(slot)), (
                f"{name}: slot {slot} ended {ends} times: {single.get(slot)}, {covering}, {cursor}"
            )
        for first, row in [*runs, *single.items()]:
            if row.state == "coalesced":
                covered = any(earliest <= first and (row.until or first) < slot for earliest, slot in stood_for)
                assert covered, f"{name}: {first} says coalesced, and no run stands for it"
        for first, row in runs:
            if row.count is not None and not any(ledger.unsure_of(at) for at in (first, row.until or 0)):
                inside = sum(first <= slot <= (row.until or 0) and slot not in single for slot in ledger.due)
                assert inside == row.count, f"{name}: the run at {first} says {row.count}, there were {inside}"

    def lives(self, row: SlotRow) -> bool:
        rows = self.disk.rows_now
        return row.job_id is not None and rows.get(b"job/" + row.job_id.encode()) is not None


def rule_of(row: DefinitionRow) -> tuple[object, ...]:
    return (row.every_ms is not None and row.anchor, *(getattr(row, name) for name in RULE))


def slots_between(row: DefinitionRow, start: int, end: int) -> list[int]:
    """The slots in (start, end], computed apart from the code under test."""
    if row.at is not None:
        return [row.at] if start < row.at <= end else []
    if row.every_ms is not None:
        first = row.anchor + (start - row.anchor) // row.every_ms * row.every_ms + row.every_ms
        return list(range(first, end + 1, row.every_ms))
    rule = Rule(row.cron or "", row.timezone)
    found: list[int] = []
    while (slot := rule.next_ms(found[-1] if found else start)) is not None and slot <= end:
        found.append(slot)
    return found
