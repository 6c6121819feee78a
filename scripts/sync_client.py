"""Write the blocking classes of `actors/client/` from those that they stand for: `python scripts/sync_client.py`.

Signatures and docstrings are those of the coroutines, so type checkers and editors know them; a test runs this again
and compares.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
WHERE: Final = ROOT / "actors" / "client"
SCHEDULER: Final = "actors/scheduler/client/scheduler.py"
READS: Final = "actors/scheduler/client/scheduler_reads.py"
SCHEDULES: Final = "actors/scheduler/client/schedules.py"
DEAD: Final = "actors/scheduler/client/dead_letters.py"
CLOCK: Final = "actors/scheduler/client/clock.py"
GROUPS: Final = "actors/scheduler/client/groups.py"
DEFERRED: Final = "actors/scheduler/client/deferred.py"


@dataclass(frozen=True)
class Blocking:
    """A class to write: of which one it is made, and what is written by hand of it."""

    file: str
    source: str
    kind: str
    says: str
    imports: str
    before: str
    by_hand: tuple[str, ...] = ()
    above: tuple[tuple[str, str], ...] = ()
    """Where the classes are that the other one inherits from, and what they are called."""


CLASSES: Final = (
    Blocking(
        "sync_scheduler.py", SCHEDULER, "Scheduler",
        "`SyncScheduler`: the handle on one scheduler for code that blocks.",
        "from collections.abc import Generator, Iterator\n"
        "from tocsin.actors.client.blocking import Blocking\n"
        "from tocsin.actors.client.sync_clock import SyncClock\n"
        "from tocsin.actors.client.sync_dead_letters import SyncDeadLetters\n"
        "from tocsin.actors.client.sync_deferred import SyncDeferred\n"
        "from tocsin.actors.client.sync_groups import SyncGroups\n"
        "from tocsin.actors.client.sync_schedules import SyncSchedules\n"
        "from tocsin.actors.scheduler.client.scheduler import Scheduler\n"
        "from tocsin.actors.scheduler.client.pools import PoolHandle\n"
        "from tocsin.actors.scheduler.client.tasks import TaskMaker\n",
        '''
class SyncScheduler(SyncDeadLetters):
    """A `Scheduler` whose methods return when they are answered. Threads may share it.

    Errors are those of a `Client`.
    """

    def __init__(self, blocking: Blocking, name: str) -> None:
        """Hold a thread with a client; users get their handles from `SyncClient.scheduler`."""
        self._blocking, self.name = blocking, name

    def _page_of_changes(self, since: str | None) -> FeedPage:
        return self._call(lambda it: it._page_of_changes(since))

    @property
    def schedules(self) -> SyncSchedules:
        """Return the recurring definitions, whose occurrences become jobs of this instance."""
        return SyncSchedules(self._blocking, self.name)

    @property
    def groups(self) -> SyncGroups:
        """Return the groups of this instance: jobs that are counted together, and what follows when all have ended."""
        return SyncGroups(self._blocking, self.name)

    @property
    def clock(self) -> SyncClock:
        """Return the test clock of this instance, if it was made with one or is to be."""
        return SyncClock(self._blocking, self.name)

    @property
    def task(self) -> TaskMaker[str]:
        """Make a task of a handler: `remind = jobs.task("invoices:remind", handler)`, then `remind.after("5m",
        number=42)`, with the handler's own arguments, checked by the type checker and here. See `Task`."""
        return TaskMaker(self)

    def pools(self, name: str) -> PoolHandle[records.Pool]:
        """Return a handle on one pool: `stripe = jobs.pools("stripe")`, `stripe.pause()`, `pool=stripe`."""
        return PoolHandle(self, name)

    def deferred(self) -> SyncDeferred:
        """Collect jobs that are submitted together at the end of a block, and not at all if it fails; ids at once.

        `with jobs.deferred() as later: job_id = later.run_after("5m", ...)`. See `Deferred`.
        """
        return SyncDeferred(self._blocking, self.name)
''',
        ("schedules", "groups", "clock", "deferred", "task", "pools"),
        ((READS, "SchedulerReads"),),
    ),
    Blocking(
        "sync_dead_letters.py", DEAD, "DeadLetters",
        "`SyncDeadLetters`: the part of a handle that is about dead jobs, for code that blocks.",
        "from collections.abc import Callable, Coroutine\n"
        "from typing import Any, TypeVar\n"
        "from tocsin.actors.client.blocking import Blocking\n"
        "from tocsin.actors.scheduler.client.scheduler import Scheduler\n",
        '''
T = TypeVar("T")

class SyncDeadLetters:
    """The methods of a `SyncScheduler` that are about jobs which were given up."""

    _blocking: Blocking
    name: str

    def _call(self, ask: Callable[[Scheduler], Coroutine[Any, Any, T]]) -> T:
        return self._blocking.call(lambda client: ask(client.scheduler(self.name)))
''',
    ),
    Blocking(
        "sync_schedules.py", SCHEDULES, "Schedules",
        "`SyncSchedules`: the schedules of one scheduler for code that blocks.",
        "from collections.abc import Callable, Coroutine\n"
        "from typing import TypeVar\n"
        "from tocsin.actors.client.blocking import Blocking\n"
        "from tocsin.actors.scheduler.client.schedules import Schedules\n",
        '''
T = TypeVar("T")

class SyncSchedules:
    """`Schedules` whose methods return when they are answered."""

    def __init__(self, blocking: Blocking, name: str) -> None:
        self._blocking, self._name = blocking, name

    def _call(self, ask: Callable[[Schedules], Coroutine[Any, Any, T]]) -> T:
        return self._blocking.call(lambda client: ask(client.scheduler(self._name).schedules))
''',
    ),
    Blocking(
        "sync_groups.py", GROUPS, "Groups",
        "`SyncGroups`: the groups of one scheduler for code that blocks.",
        "from collections.abc import Callable, Coroutine\n"
        "from typing import Any, TypeVar\n"
        "from tocsin.actors.client.blocking import Blocking\n"
        "from tocsin.actors.scheduler.client.groups import Groups\n",
        '''
T = TypeVar("T")

class SyncGroups:
    """`Groups` whose methods return when they are answered."""

    def __init__(self, blocking: Blocking, name: str) -> None:
        self._blocking, self._name = blocking, name

    def _call(self, ask: Callable[[Groups], Coroutine[Any, Any, T]]) -> T:
        return self._blocking.call(lambda client: ask(client.scheduler(self._name).groups))
''',
    ),
    Blocking(
        "sync_clock.py", CLOCK, "Clock",
        "`SyncClock`: the test clock of one instance for code that blocks.",
        "from collections.abc import Callable, Coroutine\n"
        "from typing import Any, TypeVar\n"
        "from tocsin.actors.client.blocking import Blocking\n"
        "from tocsin.actors.scheduler.client.clock import Clock\n",
        '''
T = TypeVar("T")

class SyncClock:
    """A `Clock` whose methods return when they are answered."""

    def __init__(self, blocking: Blocking, name: str) -> None:
        self._blocking, self._name = blocking, name

    def _call(self, ask: Callable[[Clock], Coroutine[Any, Any, T]]) -> T:
        return self._blocking.call(lambda client: ask(client.scheduler(self._name).clock))
''',
    ),
    Blocking(
        "sync_deferred.py", DEFERRED, "Deferred",
        "`SyncDeferred`: jobs of one block, submitted together at its end, for code that blocks.",
        "from collections.abc import Callable\n"
        "from typing import TypeVar\n"
        "from tocsin.actors.client.blocking import Blocking\n"
        "from tocsin.actors.scheduler.client.deferred import Deferred\n",
        '''
T = TypeVar("T")

class SyncDeferred:
    """Jobs of one `with` block. At its end they are submitted in one commit; if it raises, none. As `Deferred`."""

    def __init__(self, blocking: Blocking, name: str) -> None:
        self._blocking = blocking
        self._deferred: Deferred = blocking.run(lambda client: client.scheduler(name).deferred())

    def _run(self, ask: Callable[[Deferred], T]) -> T:
        return self._blocking.run(lambda _: ask(self._deferred))

    def __enter__(self) -> Self:
        self._blocking.call(lambda _: self._deferred.__aenter__())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._blocking.call(lambda _: self._deferred.__aexit__(kind, error, trace))
''',
    ),
)  # fmt: skip


def written(one: Blocking) -> str:
    """Return the module, as it is to stand in the file."""
    imports: list[str] = []
    methods: list[str] = []
    for source, kind in ((one.source, one.kind), *one.above):
        tree = ast.parse((ROOT / source).read_text())
        imports += [ast.unparse(node) for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind).body
        methods += [
            _method(node)
            for node in body
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and not node.name.startswith("_")
            and node.name not in one.by_hand
        ]
    names = [line for line in imports if "__future__" not in line and "SchedulerReads" not in line]
    head = f'"""{one.says}\n\nWritten by scripts/sync_client.py of `{one.kind}`: change that, and run the script."""\n'
    text = "\n".join([head, "from __future__ import annotations", *names, one.imports, one.before, *methods])
    return _formatted(text)


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    said = ast.get_docstring(node, clean=False) or ""
    said = said.replace("`async with`", "`with`").replace("async with ", "with ").replace("`await ", "`")
    if any(isinstance(one, ast.Yield) for one in ast.walk(node)):
        body = "\n".join(ast.unparse(_Awaited().visit(line)) for line in node.body[1:])
    else:
        call = "_call" if isinstance(node, ast.AsyncFunctionDef) else "_run"
        body = f"return self.{call}(lambda it: it.{node.name}({_forwarded(node.args)}))"
        if isinstance(node.returns, ast.Constant) and node.returns.value is None:
            body = body.removeprefix("return ")
    returns = "" if node.returns is None else ast.unparse(node.returns).replace("AsyncIterator", "Iterator")
    returns = re.sub(r"AsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]", returns)
    lines = [f"    def {node.name}({ast.unparse(node.args)}) -> {returns}:", f'        """{said}"""']
    return "\n".join([*lines, *("        " + line for line in body.splitlines())])


class _Awaited(ast.NodeTransformer):
    def visit_Await(self, node: ast.Await) -> ast.expr:
        return node.value


def _forwarded(taken: ast.arguments) -> str:
    """Return the arguments as they are given on."""
    given = [one.arg for one in (*taken.posonlyargs, *taken.args)[1:]]
    given += [f"{one.arg}={one.arg}" for one in taken.kwonlyargs]
    given += [f"**{taken.kwarg.arg}"] if taken.kwarg else []
    return ", ".join(given)


_OURS: Final = 'lint.isort.known-first-party=["tocsin"]'


def _formatted(text: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    for arguments in (
        ["check", "--quiet", "--fix-only", "--unsafe-fixes", "--select", "F401,I,F811,UP028", "--config", _OURS],
        ["format", "--quiet"],
    ):
        command = [*ruff, *arguments, "--stdin-filename", str(WHERE / "sync_made.py"), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return re.sub(r"\n{3,}(?=    )", "\n\n", text)


def main() -> None:
    for one in CLASSES:
        (WHERE / one.file).write_text(written(one))


if __name__ == "__main__":
    main()
