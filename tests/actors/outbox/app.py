"""An app with a SQLite file of its own, whose drain may crash at any step; in virtual time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.outbox.databases import Row
from tocsin.actors.outbox.drain import Drain
from tocsin.actors.outbox.entry import Outbox, OutboxEntry
from tocsin.actors.outbox.statements import Dialect, Statement
from tocsin.actors.outbox.target import Answers, SchedulerTarget

INSTANCE: Final = "t"


class Crash(BaseException):
    """The process ends here."""


class Steps:
    """Counts steps; at the one that is fatal, by number or name, the process ends. `slow`: how long each takes."""

    def __init__(self, fatal: int | str | None = None, slow: Callable[[], float] | None = None) -> None:
        self.count, self.fatal, self._slow = 0, fatal, slow
        self.gates: dict[str, asyncio.Event] = {}
        """By the name of a step: it goes on when that is set."""
        self.names: list[str] = []

    async def step(self, name: str) -> None:
        if self._slow is not None:
            await asyncio.sleep(self._slow())
        if name in self.gates:
            await self.gates[name].wait()
        self.here(name)

    def here(self, name: str) -> None:
        self.count += 1
        self.names.append(name)
        if self.fatal in (self.count, name):
            raise Crash(name)


class SteppedFile:
    """A `Database` on a file, without threads."""

    dialect: Final[Dialect] = "sqlite"

    def __init__(self, path: Path, steps: Steps) -> None:
        self._path, self._steps = path, steps

    async def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        await self._steps.step("before a transaction")
        with opened(self._path) as db:  # closed in the middle: rolled back
            db.execute("BEGIN IMMEDIATE")
            rows: list[list[Row]] = []
            for statement in statements:
                rows.append(db.execute(*statement.named).fetchall())
                self._steps.here(f"after {statement.sql.split()[0]}")
            db.execute("COMMIT")
        await self._steps.step("after a commit")
        return rows

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        """A file tells nobody."""

    async def aclose(self) -> None:
        """Nothing is held."""


class SteppedTarget(SchedulerTarget):
    """A scheduler; `fails`, if set, says what it raises instead of an answer."""

    def __init__(self, sim: SimulatedHost, steps: Steps) -> None:
        super().__init__(sim.host.scheduler(INSTANCE))
        self._steps = steps
        self.fails: Callable[[], Exception | None] = lambda: None
        self.keys: list[str] = []

    async def submit_batch(self, jobs: Sequence[tuple[str, str]], key: str) -> Answers:
        await self._steps.step("before the submission")
        if (error := self.fails()) is not None:
            raise error
        self.keys.append(key)
        answers = await super().submit_batch(jobs, key)
        await self._steps.step("after the submission")
        return answers


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")  # no machine fails here
        yield db


class App:
    """Writes business rows and jobs together."""

    def __init__(self, sim: SimulatedHost, folder: Path) -> None:
        self.sim, self.path = sim, folder / "app.db"
        self.outbox = Outbox(INSTANCE, clock=sim.clock, random=sim.random)
        self.committed: set[int] = set()
        with self.db() as db:
            for sql in self.outbox.schema("sqlite"):
                db.execute(sql)

    @contextmanager
    def db(self) -> Iterator[sqlite3.Connection]:
        with opened(self.path) as db:
            yield db

    def write(self, n: int, *, roll_back: bool = False, **options: Any) -> OutboxEntry:
        """One transaction with one job, of number `n`."""
        with opened(self.path) as db:
            db.execute("BEGIN")
            entry = self.outbox.run_after(0, "app:run", n, **options)
            db.execute(*entry.qmark)
            db.execute("ROLLBACK" if roll_back else "COMMIT")
        if not roll_back:
            self.committed.add(n)
        return entry

    def drain(self, steps: Steps | None = None, **options: Any) -> Drain:
        """What a process of the app runs; its target is `drain._jobs`."""
        steps = steps or Steps()
        target = SteppedTarget(self.sim, steps)
        return Drain(SteppedFile(self.path, steps), target, clock=self.sim.clock, random=self.sim.random, **options)

    def rows(self, columns: str = "count(*)") -> list[Row]:
        with self.db() as db:
            found: list[Row] = db.execute(f"SELECT {columns} FROM tocsin_outbox ORDER BY id").fetchall()
            return found

    def fired(self) -> Counter[int]:
        """How many jobs came for each number: incarnations, not deliveries."""
        return Counter(n for n, _ in {(one.body["args"], one.webhook_id) for one in self.sim.deliveries})

    async def run_until_empty(self, seconds: float = 60.0, **options: Any) -> None:
        """Another process, after a crash."""
        drain = self.drain(**options)
        for _ in range(int(seconds)):
            await drain.run_once()
            if self.rows("id") == []:
                return
            await self.sim.sleep(1)
        raise AssertionError(f"left after {seconds} s: {self.rows('*')}")


async def until_crash(work: Awaitable[Any]) -> bool:
    """Whether it crashed."""
    try:
        await work
    except Crash:
        return True
    return False


Story = Callable[[SimulatedHost, App], Awaitable[None]]


def told(folder: Path, **options: object) -> Callable[[Story], None]:
    """Run a story at once."""

    def decorate(scenario: Story) -> None:
        @on_simulated_host(**options)  # type: ignore[arg-type]
        async def run(sim: SimulatedHost) -> None:
            await scenario(sim, App(sim, folder))

        run()

    return decorate


def target(drain: Drain) -> SteppedTarget:
    assert isinstance(drain._jobs, SteppedTarget)
    return drain._jobs
