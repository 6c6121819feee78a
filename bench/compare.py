"""`python -m bench compare`: other schedulers and queues on the same durable job, in turn with tocsin.

Each phase of a peer has a fresh store and, where it needs one, a fresh server; producers and workers are processes of
their own, and what arrives is counted at the receiver.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine
from bench.comparison import write
from bench.contenders import CONTENDERS, OURS, Contender, python_of, service_of
from bench.cpu import descendants, used_ns
from bench.figures import Book
from bench.lease import Receiver, now_ms, receiver_process
from bench.loops import default_loop
from bench.peers.services import MissingError

WORKERS = 64
LATE_JOBS, GAP_MS, LEAD_MS = 300, 10, 7_000
QUIET_S = 20.0
RUN_LIMIT_S = 600.0


class NotInstalledError(Exception):
    """A peer that this machine has not, in words."""


@dataclass(frozen=True)
class Worker:
    """A process that runs what is due, and when it had imported all it needs."""

    process: subprocess.Popen[str]
    began: float


@dataclass(frozen=True)
class Stage:
    """One contender on this machine."""

    contender: Contender
    python: str
    folder: str | None
    receiver: Receiver
    book: Book
    apart: frozenset[int]
    """Processes that belong to nobody compared: the receiver."""
    pending: int
    """Jobs of another day that are in the store too."""

    def note(self, phase: str, value: float) -> None:
        self.book.note(f"{self.contender.module}/{phase}", value)

    @contextmanager
    def fresh(self) -> Iterator[tuple[str, Path]]:
        """A service with nothing in it, and an empty folder."""
        self.receiver.ask("reset")
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as made:
            os.chmod(made, 0o755)  # a server may run as another user, in a folder of its own in here
            mine, its = Path(made) / "peer", Path(made) / "service"
            mine.mkdir()
            its.mkdir()
            with service_of(self.contender, self.python)(its) as url:
                yield url or "-", mine

    def command(self, role: str, url: str, folder: Path, numbers: Sequence[int] = ()) -> list[str]:
        module = f"bench.peers.callbacks.{self.contender.module}"
        return [self.python, "-m", module, role, url, str(folder), self.receiver.url, *map(str, numbers)]

    def ask(self, command: Sequence[str]) -> dict[str, Any]:
        """Run a role to its end; what it says. NotInstalledError if the peer is not there."""
        done = subprocess.run(
            command, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True, timeout=RUN_LIMIT_S, check=False
        )
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
        if "missing" in said:
            raise NotInstalledError(f"{said['missing']}: {self.contender.missing}")
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[2:4])} failed: see above")
        return said

    @contextmanager
    def working(self, url: str, folder: Path) -> Iterator[Worker]:
        """A worker, ended with all that it started."""
        command = self.command("work", url, folder)
        process = subprocess.Popen(command, cwd=machine.ROOT, start_new_session=True, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout:
            try:
                said = process.stdout.readline()
                yield Worker(process, float(json.loads(said)["began"]) if said else time.time())
            finally:
                kill(process)

    def used(self, worker: Worker) -> tuple[int, int]:
        """CPU nanoseconds of the worker's processes, and of those and the server's."""
        workers = {worker.process.pid} | descendants(worker.process.pid)
        own, server = used_ns(workers), used_ns(descendants(os.getpid()) - workers - self.apart)
        return own, own + server

    def until(self, count: int, quiet_s: float) -> dict[str, float]:
        """The receiver's stats once so many arrived, or nothing did for so long."""
        seen, since = -1.0, time.monotonic()
        while True:
            found = self.receiver.ask("count")["count"]
            if found >= count and (stats := self.receiver.ask("stats"))["unique"] >= count:
                return stats
            if found > seen:
                seen, since = found, time.monotonic()
            elif time.monotonic() - since > quiet_s:
                return self.receiver.ask("stats")
            time.sleep(0.02)


def kill(process: subprocess.Popen[str]) -> None:
    """With SIGKILL, and all that it started, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ---- What is measured ----------------------------------------------------------------------------


def submits(stage: Stage, jobs: int) -> None:
    with stage.fresh() as (url, folder):
        numbers = (max(jobs // 3, 20), jobs, max(jobs * 2, 1000))
        found = stage.ask(stage.command("submit", url, folder, numbers))
    for kind, value in found.items():
        stage.note(kind, value)


def drains(stage: Stage, jobs: int) -> None:
    """All were due before the worker began; from there to the last arrival, whatever it does before the first."""

    def drain(url: str, folder: Path) -> None:
        with stage.working(url, folder) as worker:
            before, all_before = stage.used(worker)
            stats = stage.until(jobs, QUIET_S)
            own, everything = stage.used(worker)
        if stats["unique"] < jobs:
            stage.book.remark(f"{stage.contender.name}: {stats['unique']:.0f} of {jobs} due jobs arrived at all.")
        if stats["unique"]:
            stage.note("drain", stats["unique"] / (stats["last"] - worker.began))
        if own > before and stats["unique"] == jobs:
            stage.note("drain/cpu", (own - before) / 1000 / jobs)
            stage.note("drain/cpu/server", (everything - all_before) / 1000 / jobs)

    when_due(stage, jobs, drain)


def when_due(stage: Stage, jobs: int, act: Callable[[str, Path], None]) -> None:
    """Act on a store with jobs that are due, and of which none has run: the process that loads them may run some."""
    lead_ms = 1_500 + jobs + stage.pending // 5
    while True:
        with stage.fresh() as (url, folder):
            instant = now_ms() + lead_ms
            stage.ask(stage.command("load", url, folder, (jobs, instant, 0, stage.pending)))
            time.sleep(max(instant - now_ms(), 0) / 1000)
            if not stage.receiver.ask("count")["count"]:
                act(url, folder)
                return
        lead_ms *= 3  # the machine was too slow


def lateness(stage: Stage, jobs: int) -> None:
    """100 a second, on disk before the first is due, the worker at rest by then."""
    count = min(LATE_JOBS, jobs)
    lead_ms = min(LEAD_MS, 1_500 + count * 20) + stage.pending // 5
    while True:
        with stage.fresh() as (url, folder):
            instant = now_ms() + lead_ms
            stage.ask(stage.command("load", url, folder, (count, instant, GAP_MS, stage.pending)))
            with stage.working(url, folder) as worker:
                in_time = worker.began * 1000 < instant - lead_ms / 10
                stats = stage.until(count, lead_ms / 1000 + QUIET_S) if in_time else {"unique": 0.0}
        if in_time:
            break
        lead_ms *= 3
    if stats["unique"]:
        stage.note("late/p50", stats["late_p50_ms"])
        stage.note("late/p99", stats["late_p99_ms"])
        stage.note("late/early", stats["early"])


def kills(stage: Stage, jobs: int, patience_s: float) -> None:
    """SIGKILL when a third has arrived, and a new worker; what has not arrived after so many quiet seconds is lost."""

    def killed(url: str, folder: Path) -> None:
        with stage.working(url, folder) as worker:
            stage.until(jobs // 3, QUIET_S)
            kill(worker.process)
        with stage.working(url, folder):
            began = time.monotonic()
            stage.until(jobs, patience_s)
            # What was delivered and not booked comes again when its lease or its like ends.
            time.sleep(max(patience_s - (time.monotonic() - began), 0))
            stats = stage.receiver.ask("stats")
        stage.note("killed/lost", jobs - stats["unique"])
        stage.note("killed/doubled", stats["count"] - stats["unique"])

    when_due(stage, jobs, killed)


def queue(stage: Stage, jobs: int) -> None:
    """Jobs that do nothing, submitted and worked off by one process."""
    if not stage.contender.queue:
        return
    with stage.fresh() as (url, folder):
        command = [
            stage.python,
            "-m",
            f"bench.peers.{stage.contender.queue}",
            str(jobs),
            str(WORKERS),
            str(folder),
            url,
        ]
        found = stage.ask(command)
    stage.note("queue", jobs / found["work_s"])


# ---- All of it -----------------------------------------------------------------------------------


def run(
    names: Sequence[str],
    *,
    jobs: int,
    rounds: int,
    pending: int,
    patience_s: float,
    python: str | None,
    folder: str | None,
    out: Path,
) -> list[Path]:
    """Measure, and write the comparison; the files that were written."""
    book, facts, began = Book(), machine.facts(folder, default_loop()), time.monotonic()
    facts["size"] = (
        f"{rounds} rounds of {jobs:,} jobs beside {pending:,} pending; after SIGKILL {patience_s:g} s of patience"
    )
    skipped: set[Contender] = set()
    with receiver_process() as receiver:
        apart = frozenset(descendants(os.getpid()))
        for number in range(1, rounds + 1):
            for contender in chosen(names):
                if contender in skipped:
                    continue
                print(f"{time.monotonic() - began:5.0f} s  {contender.name}, round {number} of {rounds}", flush=True)
                stage = Stage(contender, python_of(contender, python), folder, receiver, book, apart, pending)
                try:
                    measure(stage, jobs, patience_s if number == 1 else None)
                except (MissingError, NotInstalledError) as error:
                    skipped.add(contender)
                    book.remark(f"{contender.name}: not measured: {error}")
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    skipped.add(contender)
                    book.remark(f"{contender.name}: left out from round {number} on: {error}")
    facts["took"] = f"{time.monotonic() - began:,.0f} s"
    return write(out, book, chosen(names), facts)


def measure(stage: Stage, jobs: int, patience_s: float | None) -> None:
    submits(stage, jobs)
    drains(stage, jobs)
    lateness(stage, jobs)
    queue(stage, jobs)
    if patience_s is not None:
        kills(stage, jobs, patience_s)


def chosen(names: Sequence[str]) -> list[Contender]:
    """Those whose names begin so, in any case, and tocsin; all without any."""
    wanted = [name.casefold() for name in names]
    known = [(one, one.name.casefold()) for one in CONTENDERS]
    if unknown := [name for name in wanted if not any(full.startswith(name) for _, full in known)]:
        raise SystemExit(f"no such peer: {', '.join(unknown)}; there are {', '.join(one.name for one in CONTENDERS)}")
    return [one for one, full in known if not wanted or one is OURS or any(full.startswith(name) for name in wanted)]
