"""Three instances of one server with equal job ids and schedule names, and one receiver that remembers: the server is
killed at random moments, its store restored from a backup, or made anew: `python -m tests.processes.instances`.

Whatever a store has booked as done, the receiver has run: its own log says so.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, Final

import click

from tests.cli.processes import tocsin
from tests.processes.server_process import SECRET, ask, free_port, receiver_process, server_process
from tocsin.actors.scheduler.model.rows import HistRow, decode

INSTANCES: Final = ("alpha", "beta", "gamma")
STORE: Final = "jobs.db"
BESIDE: Final = ("", "-wal", "-shm", ".lock")
TIMEOUT_MS: Final = 1_000
JOBS: Final = 6
"""Of each instance in each round."""
ENDS: Final = ("killed", "restored", "killed", "anew")
"""How a round ends; the first ones in this order, so that few rounds see them all."""

Key = tuple[str, str]
"""Instance and job id."""


@dataclass
class Store:
    """What was asked of one store, from the day it was made or restored."""

    asked: dict[Key, int] = field(default_factory=dict)
    """The number in the args."""
    ids: int = 0

    def copied(self) -> Store:
        return Store(dict(self.asked), self.ids)


@dataclass
class Lives:
    """The two processes, and what must come of it."""

    folder: Path
    seed: int
    port: int = field(default_factory=free_port)
    numbers: int = 0
    store: Store = field(default_factory=Store)
    backups: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    booked: set[tuple[str, str, str]] = field(default_factory=set)
    """Instance, id and incarnation of all that any store had booked as done when it was looked at last."""
    swallowed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.url = f"http://127.0.0.1:{self.port}"
        self.remembered = self.folder / "receiver"
        self.remembered.mkdir()

    # ---- The rounds ------------------------------------------------------------------------------

    def run(self, rounds: int) -> None:
        ways = cycle(ENDS)
        with ExitStack() as stack:
            origin = stack.enter_context(receiver_process("tests.processes.remembering", str(self.remembered), SECRET))
            life = stack.enter_context(ExitStack())
            host = life.enter_context(server_process(self.folder, self.port, STORE, origin))
            backup = self.back_up()
            for _ in range(rounds):
                self.schedule()
                time.sleep(self.random.uniform(0.1, 1.2))  # a random moment is what is wanted here
                if self.random.random() < 0.4:
                    backup = self.back_up()
                    self.schedule()
                    time.sleep(self.random.uniform(0.1, 0.8))
                host.process.kill()
                host.process.wait()
                life.close()
                self.look()
                self.lose(next(ways), *backup)
                host = life.enter_context(server_process(self.folder, self.port, STORE, origin))
            self.schedule()
            self.wait_until_idle(150)
            assert host.stop() == 0
            self.look()
            left = {key for key in self.store.asked if key not in {one[:2] for one in self.booked}}
            assert not left, f"accepted, and never booked: {sorted(left)[:5]}"

    def schedule(self) -> None:
        """The same ids and the same schedule in each instance."""
        ids = [f"welcome-{self.store.ids + n}" for n in range(JOBS)]
        now = time.time_ns() // 1_000_000
        for instance in INSTANCES:
            jobs: list[dict[str, Any]] = []
            for n, job_id in enumerate(ids, self.numbers):
                jobs.append({
                    "id": job_id, "functionPath": "mail:welcome", "args": {"n": n}, "timeoutMs": TIMEOUT_MS,
                    "scheduledFor": now + self.random.randrange(0, 900),
                })  # fmt: skip
            results = ask(self.url, f"/i/{instance}/schedule/batch", {"jobs": jobs})["results"]
            assert all("id" in one for one in results), results
            self.store.asked.update({(instance, job["id"]): job["args"]["n"] for job in jobs})
            self.numbers += JOBS
            report = {"everyMs": 1_000, "functionPath": "report", "overlap": "allow", "timeoutMs": TIMEOUT_MS}
            ask(self.url, f"/i/{instance}/schedules/report", report, "PUT")
        self.store.ids += JOBS

    def back_up(self) -> tuple[Path, Store]:
        """While the server writes. Of a moment at which nobody schedules, so that what it holds is known."""
        self.backups += 1
        file = self.folder / f"backup-{self.backups}.db"
        done = tocsin("backup", str(file), "--store", f"sqlite:///{STORE}", cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return file, self.store.copied()

    def lose(self, way: str, backup: Path, held: Store) -> None:
        """The store, as operators do it. The receiver keeps what it remembers."""
        self.ends[way] += 1
        if way == "killed":
            return
        for suffix in BESIDE:
            (self.folder / (STORE + suffix)).unlink(missing_ok=True)
        if way == "restored":
            shutil.copy(backup, self.folder / STORE)
        self.store = held.copied() if way == "restored" else Store()

    def wait_until_idle(self, seconds: float) -> None:
        """Schedules stop; what is left ends, when the leases of the killed do at the latest."""
        for instance in INSTANCES:
            ask(self.url, f"/i/{instance}/schedules/report/pause", {}, "POST")
        deadline = time.monotonic() + seconds
        while True:
            said = [ask(self.url, f"/i/{instance}/status") for instance in INSTANCES]
            if all(one["backlog"] == one["inFlight"] == 0 for one in said):
                assert all(one["dead"] == 0 for one in said), said
                return
            assert time.monotonic() < deadline, f"still busy after {seconds} s: {said}"
            time.sleep(0.1)

    # ---- What must hold --------------------------------------------------------------------------

    def look(self) -> None:
        """All that the store has booked as done, the receiver has run: under that name, and with those args."""
        runs = [json.loads(line) for line in (self.remembered / "runs.log").read_text().splitlines()]
        ran = {(one["instance"], one["id"], one["webhook"].rpartition(":")[2]) for one in runs}
        args = {(one["instance"], one["id"], one["what"]) for one in runs}
        for one in self.done_in_store():
            instance, job_id, _ = one
            n = self.store.asked.get((instance, job_id))
            if one not in ran or (n is not None and (instance, job_id, n) not in args):
                self.swallowed.append("/".join(one))
            self.booked.add(one)
        self.runs = len(runs)

    def done_in_store(self) -> set[tuple[str, str, str]]:
        """Read without the server, as it left it."""
        sql = "SELECT a.name, kv.key, kv.value FROM kv JOIN actor a ON a.id = kv.actor WHERE kv.key >= ? AND kv.key < ?"
        found: set[tuple[str, str, str]] = set()
        with closing(sqlite3.connect(f"file:{self.folder / STORE}?mode=ro", uri=True)) as connection:
            for name, key, value in connection.execute(sql, (b"hist/", b"hist0")):
                if decode(HistRow, key, value).outcome == "done":
                    _, _, job_id, incarnation, _ = key.decode().split("/")
                    found.add((name.removeprefix("scheduler/"), job_id, incarnation))
        return found

    def check(self) -> str:
        assert not self.swallowed, f"booked as done, and never run: {self.swallowed[:5]} ({len(self.swallowed)})"
        planned = sum(job_id.startswith("cron-") for _, job_id, _ in self.booked)
        ways = ", ".join(f"{count} {way}" for way, count in self.ends.items())
        return (
            f"{self.ends.total()} rounds ({ways}), {len(self.booked)} booked as done ({planned} of schedules) in "
            f"{len(INSTANCES)} instances, {self.runs} runs, 0 swallowed"
        )


def run(rounds: int, seed: int, folder: Path) -> Lives:
    made = Lives(folder, seed)
    made.run(rounds)
    return made


@click.command()
@click.option("--rounds", default=20, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(rounds: int, seed: int) -> None:
    """Kill the server in every round, and replace its store in some; exit 1 if a job is swallowed."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        click.echo(f"{run(rounds, seed, Path(folder)).check()}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
