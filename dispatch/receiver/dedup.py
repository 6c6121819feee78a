"""Dedup by `webhook-id`: the seam, its rules as pure functions, the answers of done jobs, and stores without a file.

A delivery *claims* its webhook-id before its handler runs. The claim ends as done, is released after a failure, or
lapses. It belongs to one lease: what a superseded holder says afterwards changes nothing.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Protocol, TypeGuard

from tocsin.dispatch.receiver.answers import DONE, JSON, NO_RESULT, duplicate
from tocsin.dispatch.transport import Answer
from tocsin.errors import SettingsError

log = logging.getLogger("tocsin.receiver")

RETENTION_S: Final = 24 * 3600.0
RESULT, REMARK = b"1", b"0"
"""How the body of a kept answer begins."""
PRUNED_AT_ONCE: Final = 32
"""Forgotten ids dropped per claim: more than come in, so what is kept stays bounded."""
ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Bytes of answers that a `MemoryDedup` keeps in total."""


class Found(Enum):
    """The record that a claim found."""

    NEW = "claimed: run the handler"
    RUNNING = "another delivery is at work"
    DONE = "done before"
    SEEN = "this attempt, or a later one, was here before: a replay"


class State(Enum):
    """The state of a webhook-id. `FREE`, after a failure: known, and not claimed."""

    FREE = 0
    RUNNING = 1
    DONE = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """A delivery that wants to run. `sent_ms` is its signed timestamp; unanswered, the claim lapses at `until_ms`."""

    webhook_id: str
    lease: str
    sent_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Row:
    """The record of a webhook-id: the last lease that claimed it, and what became of that."""

    lease: str
    sent_ms: int
    state: State
    until_ms: int
    touched_ms: int


class Dedup(Protocol):
    """A store of claims. Every call is atomic, and durable when it returns, as far as the store is.

    Each raises a `StoreError` if it cannot answer; nothing was changed then. A call whose task is cancelled runs to its
    end and returns: a claim without an owner would keep the job from running until it lapses.
    """

    async def claim(self, claim: Claim, *, now_ms: int) -> Found:
        """Take the webhook-id for the claim's lease, unless another delivery has it or has had it."""
        ...

    async def hold(self, webhook_id: str, lease: str, *, until_ms: int, now_ms: int) -> bool:
        """Let this lease's claim lapse at `until_ms` instead. Return whether it still had one."""
        ...

    async def finish(self, webhook_id: str, lease: str, *, now_ms: int) -> bool:
        """Note that it is done, for the retention. False, with no change, if another lease claimed it since."""
        ...

    async def release(self, webhook_id: str, lease: str, *, now_ms: int) -> bool:
        """Give up this lease's claim, so that the next attempt may run. Return whether it still had one."""
        ...

    async def aclose(self) -> None:
        """Close the store with its receiver.

        A receiver that is entered again calls `reopen()` first; a store without that method serves one life of a
        receiver.
        """
        ...


class AnswerKeeping(Dedup, Protocol):
    """A store that keeps the answer of each job that is done, so that a repeated callback gets the same answer.

    A store without these two works too: the repeated callback of a done job is answered without its result then.
    """

    async def finish(self, webhook_id: str, lease: str, *, now_ms: int, answer: bytes | None = None) -> bool:
        """Do as `Dedup.finish`, with `answer` (at most 64 KiB and a byte, given back as it is) in the same commit.

        It takes the place of an earlier one, also if it is None.
        """
        ...

    async def answer(self, webhook_id: str, *, now_ms: int) -> bytes | None:
        """Return what the `finish` that holds came with; None if nothing, or if it is kept no more."""
        ...


def keeps_answers(dedup: Dedup) -> TypeGuard[AnswerKeeping]:
    """Tell by what its methods take: one that overrides `finish` as it was before there were answers keeps none."""
    if not callable(getattr(dedup, "answer", None)):
        return False
    try:
        taken = inspect.signature(dedup.finish).parameters
    except (TypeError, ValueError):
        return False
    return "answer" in taken or any(each.kind is each.VAR_KEYWORD for each in taken.values())


# ---- The rules -----------------------------------------------------------------------------------


def is_live(row: Row, now_ms: int) -> bool:
    return row.state is State.RUNNING and now_ms < row.until_ms


def is_forgotten(row: Row, now_ms: int, retention_ms: int) -> bool:
    return row.touched_ms + retention_ms <= now_ms and not is_live(row, now_ms)


def claimed(row: Row | None, claim: Claim, now_ms: int) -> tuple[Found, Row | None]:
    """Return what the claim meets, and the new row if it is taken."""
    if row is not None:
        if row.state is State.DONE:
            return Found.DONE, None
        if is_live(row, now_ms):
            return Found.RUNNING, None
        # An attempt runs here once, whatever the network repeats, and never after a later one.
        if claim.lease == row.lease or claim.sent_ms < row.sent_ms:
            return Found.SEEN, None
    return Found.NEW, Row(claim.lease, claim.sent_ms, State.RUNNING, claim.until_ms, now_ms)


def held(row: Row | None, lease: str, until_ms: int, now_ms: int) -> Row | None:
    """Return the new row; None where nothing changes. A claim that lapsed and was not taken over is alive again."""
    if row is None or row.lease != lease or row.state is not State.RUNNING:
        return None
    return replace(row, until_ms=until_ms, touched_ms=now_ms)


def finished(row: Row | None, lease: str, now_ms: int) -> Row | None:
    """Return the new row, also after a release; None if another lease claimed it since."""
    if row is None or row.lease != lease:
        return None
    return replace(row, state=State.DONE, touched_ms=now_ms)


def released(row: Row | None, lease: str, now_ms: int) -> Row | None:
    if row is None or row.lease != lease or row.state is not State.RUNNING:
        return None
    return replace(row, state=State.FREE, touched_ms=now_ms)


def retention_ms(retention_s: float) -> int:
    if isinstance(retention_s, bool) or not isinstance(retention_s, (int, float)) or not 0 < retention_s < 1e10:
        raise SettingsError(f"retention_s must be a positive number of seconds, not {retention_s!r}")
    return int(retention_s * 1000)


# ---- How done jobs are answered --------------------------------------------------------------------


class Record:
    """Records in one dedup store that a job is done and with what answer, and answers its later callbacks.

    A store of the user's that was written before there were answers does all else; its log says once what it lacks.
    """

    def __init__(self, dedup: Dedup) -> None:
        self._dedup = dedup
        self._keeping: AnswerKeeping | None = dedup if keeps_answers(dedup) else None
        if self._keeping is None:
            log.warning(
                "%s keeps no answers: a job whose answer is lost ends without its result; give it `answer`, and"
                " `finish` an answer=, as tocsin.dispatch.receiver.dedup.AnswerKeeping has them",
                type(dedup).__name__,
            )

    async def finish(self, webhook_id: str, lease: str, answer: Answer, *, now_ms: int) -> bool:
        """Do as `Dedup.finish`, and keep `answer` where the store keeps any."""
        if self._keeping is None:
            return await self._dedup.finish(webhook_id, lease, now_ms=now_ms)
        return await self._keeping.finish(webhook_id, lease, now_ms=now_ms, answer=_kept(answer))

    async def answer(self, webhook_id: str, *, now_ms: int) -> Answer:
        """Return how the callback of a job that is done is answered. Raise what the store raises."""
        kept = None if self._keeping is None else await self._keeping.answer(webhook_id, now_ms=now_ms)
        return _replayed(kept) if kept else duplicate()


def _kept(answer: Answer) -> bytes | None:
    """Return the body of a "done", behind a byte that says whether it is a result. None: it says no more than done."""
    if answer is DONE:
        return None
    return (RESULT if "tocsin-result" not in answer.headers else REMARK) + answer.body


def _replayed(kept: bytes) -> Answer:
    """Return the answer that `_kept` was made of."""
    return Answer(200, JSON if kept[:1] == RESULT else NO_RESULT, kept[1:])


# ---- Stores --------------------------------------------------------------------------------------


class MemoryDedup:
    """Claims in the memory of one process, kept for `retention_s` and at most `limit` ids.

    Over the limit the id settled longest ago is forgotten first, and a running claim never. Of answers it keeps
    `answer_bytes` (64 MiB) all together: over that the oldest are dropped, and their jobs stay done.
    """

    def __init__(
        self, *, retention_s: float = RETENTION_S, limit: int = 100_000, answer_bytes: int = ANSWER_BYTES
    ) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise SettingsError(f"limit must be a positive number of ids, not {limit!r}")
        if isinstance(answer_bytes, bool) or not isinstance(answer_bytes, int) or answer_bytes < 0:
            raise SettingsError(f"answer_bytes must be a number of bytes from 0 on, not {answer_bytes!r}")
        self._retention_ms, self._limit = retention_ms(retention_s), limit
        self._answers = _Answers(answer_bytes)
        self._rows: OrderedDict[str, Row] = OrderedDict()
        """By when they were touched, oldest first."""
        self._lock = threading.Lock()  # frameworks without a loop call from several threads

    def __len__(self) -> int:
        return len(self._rows)

    async def claim(self, claim: Claim, *, now_ms: int) -> Found:
        with self._lock:
            self._prune(now_ms)
            found, row = claimed(self._row(claim.webhook_id, now_ms), claim, now_ms)
            self._put(claim.webhook_id, row)
            if len(self._rows) > self._limit:
                self._forget_one(now_ms, claim.webhook_id)
            return found

    async def hold(self, webhook_id: str, lease: str, *, until_ms: int, now_ms: int) -> bool:
        with self._lock:
            return self._put(webhook_id, held(self._row(webhook_id, now_ms), lease, until_ms, now_ms))

    async def finish(self, webhook_id: str, lease: str, *, now_ms: int, answer: bytes | None = None) -> bool:
        with self._lock:
            if not self._put(webhook_id, finished(self._row(webhook_id, now_ms), lease, now_ms)):
                return False
            self._answers.put(webhook_id, answer)
            return True

    async def answer(self, webhook_id: str, *, now_ms: int) -> bytes | None:
        with self._lock:
            row = self._row(webhook_id, now_ms)
            return self._answers.get(webhook_id) if row is not None and row.state is State.DONE else None

    async def release(self, webhook_id: str, lease: str, *, now_ms: int) -> bool:
        with self._lock:
            return self._put(webhook_id, released(self._row(webhook_id, now_ms), lease, now_ms))

    def reopen(self) -> None:
        """Do nothing: nothing was given up."""

    async def aclose(self) -> None:
        """Do nothing: nothing is held."""

    def _row(self, webhook_id: str, now_ms: int) -> Row | None:
        row = self._rows.get(webhook_id)
        return None if row is None or is_forgotten(row, now_ms, self._retention_ms) else row

    def _put(self, webhook_id: str, row: Row | None) -> bool:
        if row is None:
            return False
        self._rows[webhook_id] = row
        self._rows.move_to_end(webhook_id)
        return True

    def _prune(self, now_ms: int) -> None:
        for _ in range(PRUNED_AT_ONCE):
            webhook_id = next(iter(self._rows), None)
            if webhook_id is None or self._row(webhook_id, now_ms) is not None:
                return
            self._drop(webhook_id)

    def _forget_one(self, now_ms: int, but: str) -> None:
        for webhook_id, row in self._rows.items():
            if webhook_id != but and not is_live(row, now_ms):
                self._drop(webhook_id)
                return

    def _drop(self, webhook_id: str) -> None:
        del self._rows[webhook_id]
        self._answers.put(webhook_id, None)


class _Answers:
    """The answers that one `MemoryDedup` keeps, oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._by_id: OrderedDict[str, bytes] = OrderedDict()

    def get(self, webhook_id: str) -> bytes | None:
        return self._by_id.get(webhook_id)

    def put(self, webhook_id: str, answer: bytes | None) -> None:
        """Keep it in place of the one before; None: keep none."""
        self._size -= len(self._by_id.pop(webhook_id, b""))
        if answer is None:
            return
        self._by_id[webhook_id] = answer
        self._size += len(answer)
        while self._size > self._limit:
            _, dropped = self._by_id.popitem(last=False)
            self._size -= len(dropped)


class NoDedup:
    """Runs every delivery: for handlers that write `webhook_id` in one transaction with their own writes."""

    async def claim(self, claim: Claim, *, now_ms: int) -> Found:
        return Found.NEW

    async def hold(self, webhook_id: str, lease: str, *, until_ms: int, now_ms: int) -> bool:
        return True

    async def finish(self, webhook_id: str, lease: str, *, now_ms: int, answer: bytes | None = None) -> bool:
        return True

    async def answer(self, webhook_id: str, *, now_ms: int) -> bytes | None:
        return None

    async def release(self, webhook_id: str, lease: str, *, now_ms: int) -> bool:
        return True

    def reopen(self) -> None:
        """Do nothing: nothing was given up."""

    async def aclose(self) -> None:
        """Do nothing: nothing is held."""
