"""Calls to actors of other hosts that are kept in the store until they are done, and the hints that hurry them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tocsin.errors import OverloadedError, StoreError, StoreUnavailable
from tocsin.storage.ownership.engine import Mail, SharedEngine, slot_of
from tocsin.storage.ownership.membership import either
from tocsin.storage.shared import Arrived, SharedCounts
from tocsin.storage.tasks import begin_soon

log = logging.getLogger("tocsin.storage")

MOST_IN_SLOT: Final = 10_000
OLDEST_MS: Final = 30_000
MAIL_AT_ONCE: Final = 500
HINT_EVERY_S: Final = 0.01
TRIES: Final = 3
TRY_AGAIN_S: Final = 0.1
ANSWER_LOOK_S: Final = 0.25
"""So often a caller looks for its answer although no hint has come."""


class Hints:
    """Sends hints to hosts: what is asked for within `HINT_EVERY_S` travels together. A hint that fails is dropped."""

    def __init__(self, engine: SharedEngine) -> None:
        self._engine = engine
        self._targets: set[str] = set()
        self._all = False
        self._task: asyncio.Task[None] | None = None

    def send(self, hosts: Iterable[str] = ()) -> None:
        """Wake these hosts, or all if none is named."""
        named = set(hosts)
        self._targets |= named
        self._all = self._all or not named
        if self._task is None:
            self._task = begin_soon(self._run())

    async def flush(self) -> None:
        """Wait until all hints are on their way."""
        while (task := self._task) is not None:
            await asyncio.wait([task])

    async def _run(self) -> None:
        try:
            while self._targets or self._all:
                hosts, self._targets = [] if self._all else sorted(self._targets), set()
                self._all = False
                with suppress(StoreError):
                    await self._engine.hint(hosts)
                await asyncio.sleep(HINT_EVERY_S)
        finally:
            self._task = None


@dataclass(slots=True, eq=False)
class _Letter:
    mail: Mail
    kept: asyncio.Future[bool]


@dataclass(slots=True)
class _Seen:
    """Mail that was handed on and is not ended: handed on again after a while."""

    again_at: float
    epoch: int
    stays: bool = False
    """A call that was handed on twice, and may never end."""


@dataclass(slots=True)
class Post:
    """The facts of its host that a mailbox goes by."""

    host: Callable[[], str]
    owner_of: Callable[[int], str | None]
    held: Callable[[], dict[int, int]]
    """The slots whose mail this host may do, with their epochs."""
    sure: Callable[[], bool]


@dataclass(slots=True)
class OwnedMailbox:
    """The `Mailbox` of a host: letters that are sent at the same time travel in one statement."""

    engine: SharedEngine
    post: Post
    hints: Hints
    counts: SharedCounts
    again_s: float
    """Mail that was handed on is handed on again after so long, if it was not ended."""
    most: int = MOST_IN_SLOT
    oldest_ms: int = OLDEST_MS
    _outgoing: list[_Letter] = field(default_factory=list)
    _sending: asyncio.Task[None] | None = None
    _hinted: asyncio.Event = field(default_factory=asyncio.Event)
    _looked: asyncio.Event = field(default_factory=asyncio.Event)
    _awaited: dict[str, list[asyncio.Future[bytes | None]]] = field(default_factory=dict)
    _looking: asyncio.Task[None] | None = None
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _stopped: bool = False

    def start(self) -> None:
        self._hinted, self._looked, self._stopped = asyncio.Event(), asyncio.Event(), False
        self._seen.clear()

    def stop(self) -> None:
        self._stopped = True
        self._hinted.set()
        self._looked.set()
        for each in (each for waiting in self._awaited.values() for each in waiting if not each.done()):
            each.set_result(None)

    def hinted(self) -> None:
        """Look for mail and for answers now."""
        self._hinted.set()
        self._looked.set()

    # ---- Sending ---------------------------------------------------------------------------------

    async def send(self, actor: str, op: str, body: bytes) -> None:
        await self._keep(Mail(slot_of(actor), 0, op, actor, body, self.post.host()))

    async def bring(self, one: Arrived) -> None:
        await self._keep(Mail(slot_of(one.actor), 0, one.op, one.actor, one.body, one.sender))

    async def _keep(self, mail: Mail) -> None:
        letter = _Letter(mail, asyncio.get_running_loop().create_future())
        self._outgoing.append(letter)
        if self._sending is None:
            self._sending = begin_soon(self._send_all())
        if not await letter.kept:
            raise OverloadedError(
                f"over {self.most} calls for {mail.actor}'s part of the store wait already, or the oldest waits "
                f"for over {self.oldest_ms / 1000:g} s: try again later",
                retryAfterMs=1000,
            )
        self.counts.mail_sent += 1
        owner = self.post.owner_of(letter.mail.slot)
        self.hints.send([] if owner is None else [owner])

    async def _send_all(self) -> None:
        try:
            while self._outgoing:
                letters, self._outgoing = self._outgoing[:MAIL_AT_ONCE], self._outgoing[MAIL_AT_ONCE:]
                try:
                    kept = await self._put([letter.mail for letter in letters])
                except StoreError as error:
                    for letter in letters:
                        _fail(letter.kept, error)
                    continue
                for letter, yes in zip(letters, kept, strict=True):
                    if not letter.kept.done():
                        letter.kept.set_result(yes)
        finally:
            self._sending = None
            for letter in self._outgoing:
                letter.kept.cancel()
            self._outgoing = []

    async def _put(self, mail: Sequence[Mail]) -> list[bool]:
        """Keep mail. A second time changes nothing, so a lost answer is no harm."""
        for _ in range(TRIES - 1):
            try:
                return await self.engine.put_mail(mail, self.most, self.oldest_ms)
            except StoreUnavailable:
                await asyncio.sleep(TRY_AGAIN_S)
        return await self.engine.put_mail(mail, self.most, self.oldest_ms)

    # ---- Answers ---------------------------------------------------------------------------------

    async def answer(self, op: str, wait_s: float) -> bytes | None:
        """Return the answer to a call of this host; None if it has not come in this time."""
        if self._stopped:
            return None
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(op, []).append(answer)
        self._looked.set()
        if self._looking is None:
            self._looking = begin_soon(self._look_for_answers())
        try:
            async with asyncio.timeout(wait_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._awaited[op].remove(answer)
            if not self._awaited[op]:
                del self._awaited[op]

    async def _look_for_answers(self) -> None:
        """Look for all that are waited for together: however many calls wait, a hint costs one statement."""
        try:
            while self._awaited and not self._stopped:
                self._looked.clear()
                waited = [*self._awaited]
                for first in range(0, len(waited), MAIL_AT_ONCE):
                    await self._look_for(waited[first : first + MAIL_AT_ONCE])
                await asyncio.sleep(HINT_EVERY_S)  # those who were answered go; what is asked for meanwhile is one look
                await either(self._looked, ANSWER_LOOK_S)
        finally:
            self._looking = None

    async def _look_for(self, ops: Sequence[str]) -> None:
        try:
            found = await self.engine.answers(ops)
        except StoreUnavailable:
            return
        except StoreError as error:
            for each in (each for op in ops for each in self._awaited.get(op, ())):
                _fail(each, error)
            return
        for op, body in found.items():
            for each in self._awaited.get(op, ()):
                if not each.done():
                    each.set_result(body)

    # ---- Arrivals --------------------------------------------------------------------------------

    async def arrivals(self) -> AsyncIterator[Sequence[Arrived]]:
        """Yield calls for actors of this host, the oldest of each actor first. What is not ended comes again."""
        while not self._stopped:
            self._hinted.clear()
            full = False
            if self.post.sure() and (held := self.post.held()):
                # What stays is read beside the rest, and not instead of it.
                limit = MAIL_AT_ONCE + sum(seen.stays for seen in self._seen.values())
                try:
                    mail = await self.engine.take_mail(sorted(held), limit)
                except StoreUnavailable as error:
                    log.warning("the mail of this host could not be read, trying again soon: %s", error)
                    mail = []
                new = self._new(mail, held, limit)
                if new:
                    full = len(mail) == limit
                    yield [Arrived(one.op, one.actor, one.body, one.sender, one.slot, one.seq) for one in new]
            if not full:
                await either(self._hinted, self.again_s / 4)

    def _new(self, mail: Sequence[Mail], held: dict[int, int], limit: int) -> list[Mail]:
        """Return the mail that was not handed on just now; what is gone from the store is forgotten."""
        now = asyncio.get_running_loop().time()
        if len(mail) < limit:
            there = {one.op for one in mail}
            self._seen = {op: seen for op, seen in self._seen.items() if op in there}
        new = []
        for one in sorted(mail, key=lambda one: one.seq):
            epoch = held.get(one.slot)
            if epoch is None:
                continue
            seen = self._seen.get(one.op)
            if seen is None or seen.epoch != epoch or now >= seen.again_at:
                self._seen[one.op] = _Seen(now + self.again_s, epoch, stays=seen is not None and seen.epoch == epoch)
                new.append(one)
        return new

    async def end(self, done: Sequence[tuple[Arrived, bytes]]) -> None:
        """Note that these calls were done, and wake those who sent them."""
        if not done:
            return
        mail = [(Mail(one.slot, one.seq, one.op, one.actor, b"", one.sender), answer) for one, answer in done]
        ended = await self.engine.end_mail(self.post.host(), mail)
        self.counts.mail_done += len(ended)
        for one in ended:
            self._seen.pop(one.op, None)
        if senders := {one.sender for one in ended}:
            self.hints.send(senders)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
