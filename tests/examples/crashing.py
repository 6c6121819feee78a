"""Runs an example in forks of one process; each dies at another step, and is then run to its end.

    python -m tests.examples.crashing EXAMPLE FOLDER DATABASE OF_APP OF_DRAIN

Fork n works in FOLDER/n and with DATABASE_URL=DATABASE, where {n} stands for its number. It dies at a step without a
word, as by SIGKILL; what it was about to do is in FOLDER/n/died. Steps are the app's own inserts, at which the first
OF_APP forks die, and those of the drain, at which the next OF_DRAIN do. Each kind is counted by itself: app and drain
run side by side, and which of them is ahead differs from fork to fork.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tocsin.actors.outbox.databases import AsyncpgDatabase, SQLAlchemyDatabase
from tocsin.actors.outbox.drain import Drain
from tocsin.actors.outbox.entry import Outbox, OutboxEntry
from tocsin.actors.outbox.statements import Statement
from tocsin.actors.outbox.target import SchedulerTarget

DIED: Final = 9
PUT_OFF: Final = "6s"


class Steps:
    """Dies at the step of that number; 0: at none."""

    def __init__(self, fatal: int) -> None:
        self._fatal, self._count = fatal, 0

    def step(self, name: str) -> None:
        self._count += 1
        if self._count == self._fatal:
            Path("died").write_text(name)
            os._exit(DIED)


class Stepwise(list[Statement]):
    """Statements of a transaction; each is a step when its turn comes."""

    steps: Steps

    def __iter__(self) -> Iterator[Statement]:
        for one in super().__iter__():
            self.steps.step(f"before {one.sql.split()[0]}")
            yield one
        self.steps.step("before COMMIT")


def watch(of_app: Steps, steps: Steps) -> None:
    """Make steps of whatever changes something: of the app, and of the drain."""
    submit = SchedulerTarget.submit_batch
    Stepwise.steps = steps

    async def submit_in_steps(self: SchedulerTarget, jobs: Any, key: str) -> Any:
        steps.step("before the submission")
        answers = await submit(self, jobs, key)
        steps.step("after the submission")
        return answers

    SchedulerTarget.submit_batch = submit_in_steps  # type: ignore[method-assign]
    for database in (AsyncpgDatabase, SQLAlchemyDatabase):
        _watch_database(database, steps)
    for form in ("insert", "dollar"):
        _watch_entry(form, of_app)


def put_off() -> None:
    """Have jobs run later than the last step: a callback that dies with its fork is in doubt, and its lease is held."""
    run_after = Outbox.run_after

    def later(self: Outbox, after: Any, *given: Any, **options: Any) -> OutboxEntry:
        return run_after(self, PUT_OFF, *given, **options)

    Outbox.run_after = later  # type: ignore[method-assign, assignment]


def _watch_database(database: Any, steps: Steps) -> None:
    run = database.run

    async def run_in_steps(self: Any, statements: Sequence[Statement]) -> Any:
        if statements[0].sql.startswith("SELECT"):
            return await run(self, statements)
        rows = await run(self, Stepwise(statements))
        steps.step("after COMMIT")
        return rows

    database.run = run_in_steps


def _watch_entry(form: str, steps: Steps) -> None:
    given = getattr(OutboxEntry, form)

    def stepped(self: OutboxEntry) -> Any:
        steps.step("before the app's INSERT")
        return given.fget(self)

    setattr(OutboxEntry, form, property(stepped))


def loaded(example: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("example", example)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def forked(example: str, folder: Path, database: str, of_app: int, of_drain: int) -> int:
    """The process; it ends with DIED at one of those steps, or with 0."""
    if pid := os.fork():
        return pid
    try:
        os.chdir(folder)
        os.environ["DATABASE_URL"] = database
        watch(Steps(of_app), Steps(of_drain))
        if of_app or of_drain:
            put_off()
        asyncio.run(loaded(example).main())
        os._exit(0)
    except BaseException:  # a fork must not go on as its parent
        traceback.print_exc()
        os._exit(1)


def main(example: str, folder: str, database: str, of_app: str, of_drain: str) -> None:
    os.chdir(folder)
    loaded(example)  # forks have imported all it needs
    assert Drain.__init__.__kwdefaults__ is not None
    Drain.__init__.__kwdefaults__["hold"] = 0.5  # or each fork would wait for some seconds
    fatal = [(n, 0) for n in range(1, int(of_app) + 1)] + [(0, n) for n in range(1, int(of_drain) + 1)]
    for died in (True, False):
        processes = []
        for n, steps in enumerate(fatal, 1):
            mine = Path(folder, str(n))
            mine.mkdir(exist_ok=True)
            processes.append(forked(example, mine, database.replace("{n}", str(n)), *(steps if died else (0, 0))))
        for process in processes:
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            assert code in ((0, DIED) if died else (0,)), f"a fork ended with {code}"


if __name__ == "__main__":
    main(*sys.argv[1:])
