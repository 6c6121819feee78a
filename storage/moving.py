"""A whole store from one engine to another: every row, wake time and epoch of every actor, as it is.

Both stores are held for the whole time, so nothing changes while it is copied. What has been done is noted in them,
and a move that was stopped goes on where it was:

    source      target       what is next
    -           -            note the move in both
    leaving     - or empty   copy, actor by actor; compare; then say in the source where it went
    left        arriving     say in the target that it may be used
    left        arrived      nothing
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from tocsin.errors import ConflictError, StoreCorrupt, StoreLocked, StoreUnavailable
from tocsin.storage.api import Batch, OrderedStore, StoreProvider
from tocsin.storage.notes import MOVE, NOTES, PROGRESS, RESIDENCY, MoveNote, Part, read_notes, write_notes
from tocsin.storage.shared import shared_of
from tocsin.storage.tasks import begin_soon

ACTORS_AT_ONCE: Final = 200
"""So many actors are between two notes of progress."""
COPIES_AT_ONCE: Final = 16
ROWS_AT_ONCE: Final = 5_000
BYTES_AT_ONCE: Final = 1024 * 1024
OPEN_S: Final = 30.0
"""Seconds that a shared store may need until this process has all of it."""
PAUSE_S: Final = 0.1
OWNS_ALL: Final = 2**31 - 1
"""The weight of a host beside which others own nothing."""
_LEAST, _MOST = b"\x00", b"\xff" * 1025


@dataclass(frozen=True, slots=True)
class Sums:
    """The numbers of actors, rows and bytes of a store, and a digest over all of it."""

    actors: int = 0
    rows: int = 0
    size: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Counted:
    """One actor: its rows, bytes, wake time, and a digest over all of it."""

    rows: int
    size: int
    wake_at: int | None
    digest: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """A started store that is part of a move. `name` says where it is, without a password, and always in the same
    words: it is how a move that was stopped knows its stores again."""

    provider: StoreProvider
    name: str


def keep_all(provider: StoreProvider) -> None:
    """Have this process own all of a shared store that is not open yet, beside hosts that come, too: they are refused
    once they have read its notes, and are to take nothing before that."""
    if (shared := shared_of(provider)) is not None:
        shared.announce(None, OWNS_ALL)


Told = Callable[[str, Sums], None]
"""Told of progress: what is being done ("copied", "compared"), and how much of it is done."""


class StoreMove:
    """A move of everything from one store to another. Whoever opened both holds them until it is done."""

    def __init__(self, source: Place, target: Place, now_ms: Callable[[], int], tell: Told) -> None:
        self._source, self._target, self._now_ms, self._tell = source, target, now_ms, tell

    async def run(self, move: str) -> Sums:
        """Move everything, or go on with that. `move` names the move if it is a new one. ConflictError with the reason
        if these stores cannot be the two of a move."""
        await self._check_alone()
        left, came = await self._notes()
        if left is not None and left.part is Part.LEFT:
            return await self._finished(left, came)
        await self._check_mail()
        noted: list[Place] = []
        if left is None:
            await self._check_empty(came)
            left = MoveNote(Part.LEAVING, move, self._target.name, self._now_ms())
            await write_notes(self._source.provider, {MOVE: left.written()})
            noted.append(self._source)
        if came is None:
            await self._check_empty(came)
            came = MoveNote(Part.ARRIVING, left.move, self._source.name, left.at_ms)
            await write_notes(self._target.provider, {MOVE: came.written()})
            noted.append(self._target)
        await self._check_still_alone(noted)
        await self._copy()
        sums = await self._compare()
        await self._check_mail()
        left = replace(left, part=Part.LEFT, at_ms=self._now_ms(), digest=sums.digest)
        await write_notes(self._source.provider, {MOVE: left.written()})
        await self._open_target(left)
        return sums

    async def preview(self) -> Sums:
        """Count what is to be moved, and check that it can be; change nothing."""
        await self._check_alone()
        left, came = await self._notes()
        if left is None:
            await self._check_empty(came)
        await self._check_mail()
        return await total(self._source.provider, self._tell)

    async def give_up(self) -> None:
        """Let the source be used again, and never the target. ConflictError if all of it has arrived, or none is
        moving."""
        await self._check_alone()
        left, came = await self._notes()
        if left is None:
            raise ConflictError(f"{self._source.name} is not being moved")
        if left.part is not Part.LEAVING:
            raise ConflictError(f"all of it is at {self._target.name}: run the command without --abort")
        if came is not None:
            await write_notes(self._target.provider, {MOVE: replace(came, part=Part.GIVEN_UP).written()})
        await write_notes(self._source.provider, {MOVE: None})

    # ---- What was done before --------------------------------------------------------------------

    async def _check_alone(self) -> None:
        """Refuse stores that other hosts use. A host that was killed is waited for: it is declared dead soon."""
        loop = asyncio.get_running_loop()
        end = loop.time() + OPEN_S
        for place in (self._source, self._target):
            while others := await _others(place.provider):
                if loop.time() >= end:
                    raise StoreLocked(
                        f"{place.name} is in use by {', '.join(others)}: stop all hosts of it before it is moved"
                    )
                await asyncio.sleep(PAUSE_S)

    async def _check_still_alone(self, noted: Sequence[Place]) -> None:
        """Refuse to go on beside a host that came before it could read these notes, which are taken back. One that came
        later has read them, and goes by itself."""
        try:
            await self._check_alone()
        except StoreLocked:
            for place in reversed(noted):
                await write_notes(place.provider, {MOVE: None})
            raise

    async def _check_mail(self) -> None:
        """Refuse a source with calls in its mail: they were accepted, and only its own hosts can do them."""
        shared = shared_of(self._source.provider)
        if shared is not None and (waiting := (await shared.facts()).mail):
            raise ConflictError(
                f"calls that were accepted wait in the mail of {self._source.name} ({waiting}), and mail is not moved: "
                "stop the apps that write there, and run a host of it until all are done"
            )

    async def _notes(self) -> tuple[MoveNote | None, MoveNote | None]:
        """Return the notes of this move in both stores; those of moves that have ended are none. ConflictError if one
        of the stores is part of another move."""
        left, came = await check_source(self._source, self._target.name), await _note(self._target)
        arrived = await _arrived(self._target)
        if left is not None and left.part is Part.LEFT and arrived is not None and arrived.move == left.move:
            return left, arrived
        if came is not None and (left is None or came.move != left.move):
            raise ConflictError(
                f"{self._target.name} is part of another move, with {came.other}: give an empty store "
                "(in the same database: one with another ?schema=)"
            )
        return left, came

    async def _check_empty(self, came: MoveNote | None) -> None:
        target = self._target.provider
        if came is None and [name for name in await target.names("", 2) if name != NOTES]:
            raise ConflictError(f"{self._target.name} is not empty: give a store that nothing was written to")
        rules = (await read_notes(target.view(NOTES))).get(RESIDENCY)
        if rules is not None and rules != (await read_notes(self._source.provider.view(NOTES))).get(RESIDENCY):
            raise ConflictError(
                f"{self._target.name} is one of several stores, with other rules than {self._source.name}: give an "
                "empty store"
            )

    async def _finished(self, left: MoveNote, came: MoveNote | None) -> Sums:
        """Do what is left of a move whose source was sealed."""
        if came is None:
            raise ConflictError(
                f"{self._source.name} was moved to {left.other}, and nothing is there: look for the store that was"
            )
        if came.part is Part.ARRIVING:
            await self._open_target(left)
        sums = await total(self._source.provider, self._tell)
        return sums

    async def _open_target(self, left: MoveNote) -> None:
        """Let the target be used: all of it is there."""
        rules = (await read_notes(self._source.provider.view(NOTES))).get(RESIDENCY)
        arrived = MoveNote(Part.ARRIVED, left.move, self._source.name, left.at_ms, left.digest)
        kept = {} if rules is None else {RESIDENCY: rules}
        await write_notes(self._target.provider, {MOVE: arrived.written(), PROGRESS: None, **kept})

    # ---- Copying ---------------------------------------------------------------------------------

    async def _copy(self) -> None:
        """Copy actor by actor, in the order of their names, and note the last one of each page."""
        notes = await read_notes(self._target.provider.view(NOTES))
        begin = notes.get(PROGRESS, b"").decode()
        sums = Sums()
        async for page in _pages(self._source.provider, begin):
            for counted in await _each(page, self._copy_one):
                sums = _added(sums, counted)
            await write_notes(self._target.provider, {PROGRESS: page[-1].encode()})
            self._tell("copied", sums)

    async def _copy_one(self, name: str) -> Counted:
        source = await _opened(self._source.provider, name, create=False)
        target = await _opened(self._target.provider, name)
        rows = size = 0
        start = _LEAST
        try:
            while True:
                page = await source.scan(start, _MOST, limit=ROWS_AT_ONCE, max_bytes=BYTES_AT_ONCE)
                if not page:
                    # It also makes an actor exist that has no rows.
                    await target.commit(Batch(wake_at=source.wake_at))
                    return Counted(rows, size, source.wake_at, b"")
                await target.commit(Batch(dict(page)))
                rows, size = rows + len(page), size + sum(len(key) + len(value) for key, value in page)
                start = page[-1][0] + b"\x00"
        finally:
            await target.close()
            await source.close()

    # ---- Comparing -------------------------------------------------------------------------------

    async def _compare(self) -> Sums:
        """Read everything again, on both sides. StoreCorrupt if anything differs."""
        sums, whole = Sums(), sha256()
        there = _names(self._target.provider)
        async for page in _pages(self._source.provider, ""):
            for name in page:
                if (other := await anext(there, None)) != name:
                    raise self._differs(f"{name} is followed by another actor there, {other}")
            ours = await _each(page, lambda name: counted(self._source.provider, name))
            theirs = await _each(page, lambda name: counted(self._target.provider, name))
            for name, one, other_one in zip(page, ours, theirs, strict=True):
                if one != other_one:
                    raise self._differs(f"{name} has {one.rows} rows here and {other_one.rows} there")
                whole.update(one.digest)
                sums = _added(sums, one)
            self._tell("compared", sums)
        if (more := await anext(there, None)) is not None:
            raise self._differs(f"{more} is only there")
        return replace(sums, digest=whole.hexdigest())

    def _differs(self, what: str) -> StoreCorrupt:
        return StoreCorrupt(
            f"{self._target.name} does not hold what {self._source.name} does: {what}. Give the move up (--abort), and "
            "move to another store"
        )


async def check_source(source: Place, target: str) -> MoveNote | None:
    """Return the note of a store's move to this place; None if it is not being moved. ConflictError if it cannot be
    moved there, before anything is made at the other end."""
    left = await _note(source)
    if left is None:
        return None
    if left.part not in (Part.LEAVING, Part.LEFT):
        raise ConflictError(f"{source.name} does not hold all of {left.other}: move that one")
    if left.other != target:
        done = "was moved" if left.part is Part.LEFT else "is being moved"
        raise ConflictError(f"{source.name} {done} to {left.other}, not to {target}")
    return left


async def total(provider: StoreProvider, tell: Told) -> Sums:
    """Read a whole store, and sum it up."""
    sums, whole = Sums(), sha256()
    async for page in _pages(provider, ""):
        for one in await _each(page, lambda name: counted(provider, name)):
            whole.update(one.digest)
            sums = _added(sums, one)
        tell("counted", sums)
    return replace(sums, digest=whole.hexdigest())


async def counted(provider: StoreProvider, name: str) -> Counted:
    """Read all rows of one actor, and sum them up."""
    store = await _opened(provider, name, create=False)
    digest = sha256(f"{name}\0{store.wake_at}\0".encode())
    rows = size = 0
    start = _LEAST
    try:
        while page := await store.scan(start, _MOST, limit=ROWS_AT_ONCE, max_bytes=BYTES_AT_ONCE):
            for key, value in page:
                digest.update(len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value)
                size += len(key) + len(value)
            rows += len(page)
            start = page[-1][0] + b"\x00"
        return Counted(rows, size, store.wake_at, digest.digest())
    finally:
        await store.close()


def _added(sums: Sums, one: Counted) -> Sums:
    return Sums(sums.actors + 1, sums.rows + one.rows, sums.size + one.size)


async def _others(provider: StoreProvider) -> list[str]:
    """Return the names of the other hosts of a store that several share."""
    if (shared := shared_of(provider)) is None:
        return []
    facts = await shared.facts()
    return [one.name for one in facts.hosts if one.host != facts.host and one.state != "dead"]


async def _note(place: Place) -> MoveNote | None:
    """Return the note of a move that has not ended, or whose source this is."""
    found = (await read_notes(place.provider.view(NOTES))).get(MOVE)
    note = None if found is None else MoveNote.read(found)
    return None if note is not None and note.part is Part.ARRIVED else note


async def _arrived(place: Place) -> MoveNote | None:
    """Return the note of the move by which this store was filled."""
    found = (await read_notes(place.provider.view(NOTES))).get(MOVE)
    note = None if found is None else MoveNote.read(found)
    return note if note is not None and note.part is Part.ARRIVED else None


async def _opened(provider: StoreProvider, name: str, *, create: bool = True) -> OrderedStore:
    """Open an actor; of a shared store, once this process has it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + OPEN_S
    while True:
        try:
            return await provider.open(name, create=create)
        except StoreLocked as error:
            if shared_of(provider) is None:
                raise
            if loop.time() >= end:
                raise StoreUnavailable(f"{name} does not come to this process: {error}") from error
        await asyncio.sleep(PAUSE_S)


async def _names(provider: StoreProvider) -> AsyncIterator[str]:
    async for page in _pages(provider, ""):
        for name in page:
            yield name


async def _pages(provider: StoreProvider, begin: str) -> AsyncIterator[list[str]]:
    """Yield the names of all actors but the notes, strictly after `begin`, in pages that are not empty."""
    last, more = begin, True
    while more:
        page = await provider.names(last, ACTORS_AT_ONCE)
        more = len(page) == ACTORS_AT_ONCE
        if page:
            last = page[-1]
        if names := [name for name in page if name != NOTES]:
            yield names


async def _each(names: Sequence[str], work: Callable[[str], Awaitable[Counted]]) -> list[Counted]:
    """Do the same for several actors at once; return what each came to, in their order."""
    free = asyncio.Semaphore(COPIES_AT_ONCE)

    async def one(name: str) -> Counted:
        async with free:
            return await work(name)

    tasks = [begin_soon(one(name)) for name in names]
    try:
        results: list[Counted] = await asyncio.gather(*tasks)
        return results
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
