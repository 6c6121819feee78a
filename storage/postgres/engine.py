"""PostgreSQL as a `SharedEngine`: every call is one statement, and decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from random import Random, SystemRandom
from typing import Any, Final
from uuid import UUID

from tocsin.errors import StoreClosed, StoreError, StoreUnavailable
from tocsin.storage.api import MAX_KEY, MAX_VALUE, Range, Row
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.ownership.engine import Beat, Held, HostRow, HostState, Mail, MailBacklog, SlotRow, Unsettled
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.postgres.address import read_url
from tocsin.storage.postgres.commit import Numbers, parameters
from tocsin.storage.postgres.connections import (
    ClosedMeanwhile,
    Connections,
    Limits,
    check_server,
    connect,
    limits_for_life,
    limits_for_rows,
)
from tocsin.storage.postgres.errors import AGAIN, DUPLICATE, FAILURES, code_of, leaves_nothing, translate
from tocsin.storage.postgres.migrate import check_rights, ensure_layout
from tocsin.storage.postgres.session import Session, channel_of
from tocsin.storage.postgres.statements import backwards, numbers_of, statements
from tocsin.storage.tasks import begin_soon

ATTEMPTS: Final = 3
"""Attempts of a statement that had no effect because it met others."""
LARGEST_ROW: Final = MAX_KEY + MAX_VALUE
WAKES_PAGE: Final = 20_000
"""Most actors that one statement reads the wake times of."""
RANGES_PAGE: Final = 1_024
"""Most runs of slots that one statement looks into. A host that takes over has hundreds, most with few actors: each
statement more is time in which their alarms do not ring."""
HINT_PAUSE_S: Final = 0.01
"""Hints of that time travel together: each takes a lock of the whole server when it is committed."""
CLOSE_S: Final = 5.0
SESSION_S: Final = 10.0
"""Time for a host that enters to have its session."""


class PostgresEngine:
    """A `SharedEngine` on a PostgreSQL database; `url` as `read_url` takes it. Nothing is connected before `open`."""

    def __init__(self, url: str, *, random: Random | None = None) -> None:
        self._address = read_url(url)
        self._sql = statements(self._address.schema)
        self._backwards = backwards(self._sql)
        self._numbers = Numbers(random or SystemRandom())
        keepers, writers, readers = shares_of(self._address.connections)
        # Reads of users never keep a commit from having a connection, and neither keeps a sign of life from it.
        self._keepers = self._pool(keepers, limits_for_life(self._address.timing))
        self._writers = self._pool(writers, limits_for_rows(self._address.timing))
        self._readers = self._pool(readers, limits_for_rows(self._address.timing))
        self._renewing: asyncio.Task[None] | None = None
        self._session = Session(self._address)
        self._timeline = ""
        self._to_hint: set[str] = set()
        self._hinting: asyncio.Task[None] | None = None

    def _pool(self, size: int, limits: Limits) -> Connections:
        return Connections(self._address, size, limits, self._saw_timeline, self._met_silence)

    @property
    def place(self) -> str:
        return self._address.place

    @property
    def session_lost_at(self) -> float | None:
        return self._session.lost_at

    @property
    def session_held_at(self) -> float:
        return self._session.held_at

    @property
    def timing(self) -> Timing:
        """Return the times of a host, as the URL says them."""
        return self._address.timing

    def __repr__(self) -> str:
        return f"PostgresEngine({self.place!r})"

    async def open(self) -> None:
        connection = await connect(self._address, plain=True)
        try:
            await check_server(connection, self.place)
            await ensure_layout(connection, self._address)
            await check_rights(connection, self._address)
        except FAILURES as error:
            raise translate(error, self.place) from error
        finally:
            connection.terminate()
        await self._keepers.open()
        await self._writers.open()
        await self._readers.open()
        await self._session.open()

    async def close(self) -> None:
        if self._hinting is not None:
            await asyncio.wait([self._hinting], timeout=CLOSE_S)
        await self._session.close()
        await self._keepers.close(CLOSE_S)
        await self._readers.close(0)
        await self._writers.close(CLOSE_S)
        self._numbers.forget_all()

    async def secret(self) -> bytes:
        rows = await self._read(self._sql.secret)
        return bytes.fromhex(rows[0]["v"])

    # ---- Rows --------------------------------------------------------------------------------------

    async def commit(self, owner: str, held: Sequence[Held], writes: Sequence[ActorWrites]) -> set[int]:
        attempt = 0
        while True:
            attempt += 1
            if unknown := self._numbers.unknown([one.name for one in writes]):
                await self._look_up(unknown)
            numbers = {one.name: self._numbers.number(one.name) for one in writes}
            given = parameters(UUID(owner), held, writes, numbers)
            try:
                rows = await self._writers.fetch(self._sql.commit, *given)
            except ClosedMeanwhile as error:
                raise Unsettled(str(error)) from error
            except FAILURES as error:
                if not leaves_nothing(error):
                    raise Unsettled(str(translate(error, self.place))) from error
                if attempt < ATTEMPTS and code_of(error) in (DUPLICATE, *AGAIN):
                    self._numbers.forget([one.slot for one in held])
                    continue
                raise translate(error, self.place) from error
            as_said = {row["slot"] for row in rows}
            if len(as_said) == len(held):
                for name, (number, is_new) in numbers.items():
                    if is_new:
                        self._numbers.note(name, number)
            else:
                self._numbers.forget([one.slot for one in held if one.slot not in as_said])
            return as_said

    async def _look_up(self, names: Sequence[str]) -> None:
        found = {row["name"]: row["actor"] for row in await self._run(self._writers, self._sql.numbers, names)}
        for name in names:
            self._numbers.note(name, found.get(name))

    async def settle(self, slots: Sequence[int]) -> list[SlotRow]:
        return _slots(await self._run(self._writers, self._sql.settle, slots))

    async def get(self, actor: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return {row["key"]: row["value"] for row in await self._read(self._sql.get, actor, keys)}

    async def scan_many(self, actor: str, ranges: Sequence[Range], max_bytes: int, reverse: bool) -> list[list[Row]]:
        sql = self._backwards if reverse else self._sql
        if len(ranges) == 1:
            start, end, limit = ranges[0]
            if limit * LARGEST_ROW <= max_bytes:
                rows = await self._read(sql.scan, actor, start, end, limit)
            else:
                rows = await self._read(sql.scan_within, actor, start, end, limit, max(max_bytes, 1))
            return [[(row["key"], row["value"]) for row in rows]]
        answer: list[list[Row]] = [[] for _ in ranges]
        starts, ends, limits = ([one[part] for one in ranges] for part in range(3))
        for row in await self._read(sql.scan_many, actor, starts, ends, limits, max(max_bytes, 1)):
            answer[row["n"] - 1].append((row["key"], row["value"]))
        return answer

    async def stored(self, actor: str) -> tuple[bool, int | None]:
        rows = await self._read(self._sql.stored, actor)
        self._numbers.note(actor, rows[0]["actor"] if rows else None)
        return (True, rows[0]["wake_at"]) if rows else (False, None)

    async def names(self, start: str, limit: int) -> list[str]:
        return [row["name"] for row in await self._read(self._sql.names, start, limit)]

    async def wakes(self, slots: Sequence[int]) -> AsyncIterator[Sequence[tuple[str, int | None]]]:
        ranges = [numbers_of(*run) for run in _runs(slots)]
        while ranges:
            now, ranges = ranges[:RANGES_PAGE], ranges[RANGES_PAGE:]
            lows, highs, most = [low for low, _ in now], [high for _, high in now], WAKES_PAGE // len(now)
            rows = await self._read(self._sql.wakes, lows, highs, most)
            last: dict[int, list[int]] = {}
            for row in rows:
                last.setdefault(row["n"], []).append(row["actor"])
            ranges[:0] = [
                (max(actors) + 1, highs[n - 1]) for n, actors in last.items() if len(actors) == most
            ]  # their rest
            if rows:
                yield [(row["name"], row["wake_at"]) for row in rows]

    # ---- Who owns what -----------------------------------------------------------------------------

    async def register(self, host: HostRow, ttl_s: float) -> None:
        await self._session.stand_for(host.host, host.session, SESSION_S)
        await self._run(
            self._keepers, self._sql.register,
            UUID(host.host), host.name, host.url, host.weight, host.state, ttl_s, host.session,
        )  # fmt: skip

    async def beat(self, host: str, ttl_s: float) -> Beat | None:
        rows = await self._run(self._keepers, self._sql.beat, UUID(host), ttl_s)
        return Beat(HostState(rows[0]["state"]), rows[0]["now_ms"], self._timeline) if rows else None

    async def hosts(self) -> list[HostRow]:
        return [
            HostRow(
                row["host"].hex, row["name"], row["url"], row["weight"], HostState(row["state"]), row["lease_left_ms"],
                row["session"], row["session_gone"],
            )
            for row in await self._run(self._keepers, self._sql.hosts)
        ]  # fmt: skip

    async def drain(self, host: str) -> bool:
        return bool(await self._run(self._keepers, self._sql.drain, UUID(host)))

    async def reap(self) -> list[str]:
        return [row["host"].hex for row in await self._run(self._keepers, self._sql.reap)]

    async def reap_without_session(self, host: str) -> bool:
        return bool(await self._run(self._keepers, self._sql.reap_without_session, UUID(host)))

    async def forget(self, host: str) -> None:
        await self._run(self._keepers, self._sql.forget, UUID(host))

    async def slots(self) -> list[SlotRow]:
        return _slots(await self._run(self._keepers, self._sql.slots))

    async def take(self, slots: Sequence[int], host: str) -> list[SlotRow]:
        taken = _slots(await self._run(self._keepers, self._sql.take, slots, UUID(host)))
        self._numbers.forget([row.slot for row in taken])
        return taken

    async def release(self, slots: Sequence[int], host: str) -> list[SlotRow]:
        return _slots(await self._run(self._keepers, self._sql.release, slots, UUID(host)))

    # ---- Mail and hints ----------------------------------------------------------------------------

    async def put_mail(self, mail: Sequence[Mail], most: int, oldest_ms: int) -> list[bool]:
        rows = await self._run(
            self._writers, self._sql.put_mail,
            [one.slot for one in mail], [UUID(one.op) for one in mail], [one.actor for one in mail],
            [one.body for one in mail], [UUID(one.sender) if one.sender else None for one in mail],
            most, oldest_ms / 1000,
        )  # fmt: skip
        return [row["kept"] for row in rows]

    async def take_mail(self, slots: Sequence[int], limit: int) -> list[Mail]:
        return [
            Mail(
                row["slot"], row["seq"], row["op"].hex, row["actor"], row["body"],
                row["sender"].hex if row["sender"] else "", row["age_ms"],
            )
            for row in await self._run(self._writers, self._sql.take_mail, slots, limit)
        ]  # fmt: skip

    async def end_mail(self, host: str, done: Sequence[tuple[Mail, bytes]]) -> list[Mail]:
        rows = await self._run(
            self._writers, self._sql.end_mail, UUID(host),
            [mail.slot for mail, _ in done], [mail.seq for mail, _ in done], [answer for _, answer in done],
        )  # fmt: skip
        await self._run(self._writers, self._sql.drop_answers)
        return [done[row["n"] - 1][0] for row in rows]

    async def answers(self, ops: Sequence[str]) -> dict[str, bytes]:
        rows = await self._run(self._writers, self._sql.answers, [UUID(op) for op in ops])
        return {row["op"].hex: row["body"] for row in rows}

    async def backlogs(self) -> list[MailBacklog]:
        rows = await self._read(self._sql.backlogs)
        return [MailBacklog(row["slot"], row["count"], row["oldest_ms"]) for row in rows]

    async def hint(self, hosts: Sequence[str]) -> None:
        schema = self._address.schema
        self._to_hint |= {channel_of(schema, host) for host in hosts} or {channel_of(schema)}
        if self._hinting is None:
            self._hinting = asyncio.get_running_loop().create_task(self._send_hints())

    async def _send_hints(self) -> None:
        try:
            while self._to_hint:
                channels, self._to_hint = self._to_hint, set()
                await self._run(self._writers, self._sql.hint, sorted(channels))
                await asyncio.sleep(HINT_PAUSE_S)
        except StoreError:
            self._to_hint.clear()  # a hint may be lost; whoever waits for it looks by itself
        finally:
            self._hinting = None

    def hints(self) -> AsyncIterator[None]:
        return self._session.hints()

    # ---- Statements --------------------------------------------------------------------------------

    async def _read(self, sql: str, *given: Any) -> list[Any]:
        """Read rows; once more where a connection broke: a restart of the server breaks all that there were."""
        try:
            return await self._run(self._readers, sql, *given)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, TimeoutError):
                raise
        return await self._run(self._readers, sql, *given)

    async def _run(self, connections: Connections, sql: str, *given: Any) -> list[Any]:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await connections.fetch(sql, *given)
            except ClosedMeanwhile as error:
                raise StoreClosed(str(error)) from None
            except FAILURES as error:
                if attempt >= ATTEMPTS or code_of(error) not in AGAIN:
                    raise translate(error, self.place) from error

    def _saw_timeline(self, timeline: str) -> None:
        self._timeline = timeline or self._timeline

    def _met_silence(self) -> None:
        """Use no connection again that was made before: what cut off one has cut off all, and each would cost as much
        time again."""
        if self._renewing is None or self._renewing.done():
            self._renewing = begin_soon(self._renew())

    async def _renew(self) -> None:
        for connections in (self._keepers, self._writers, self._readers):
            await connections.renew()


def shares_of(connections: int) -> tuple[int, int, int]:
    """Return how many connections are for signs of life and who owns what, for writes, and for reads. One more is the
    session's."""
    keepers = 1 if connections < 7 else 2
    rest = connections - 1 - keepers
    return keepers, (rest + 1) // 2, rest // 2


def _slots(rows: Sequence[Any]) -> list[SlotRow]:
    return [
        SlotRow(
            row["slot"],
            row["owner"].hex if row["owner"] else None,
            row["epoch"],
            row["seq"],
            row["base_seq"],
            tuple(row["earlier_bases"]),
        )
        for row in rows
    ]


def _runs(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of slots that follow one another."""
    ordered = sorted(set(slots))
    if not ordered:
        return
    first = ordered[0]
    for one, following in pairwise([*ordered, -1]):
        if following != one + 1:
            yield first, one
            first = following
