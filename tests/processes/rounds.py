"""Rounds of mixed load in which the host or the receiver is killed: `python -m tests.processes.rounds --rounds 100`.

Afterwards the receiver's log is held against the promises: nothing lost, no job twice inside one lease, no pool
over its cap, nothing left in the store.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import click

from tests.cli.processes import Server
from tests.processes.server_process import ask, free_port, python_module, server_process

STORE = "rounds.db"
JOBS_PER_ROUND = 60
CAPS = {"a": 1, "b": 3}
TIMEOUT_MS = 1_000
LEASE_MARGIN_S = 15.0
TOLD_WITHIN_S = 5.0
"""A receiver has given up telling the host by then."""


@dataclass
class Rounds:
    """The two processes, and what was asked of them."""

    folder: Path
    seed: int
    host_port: int = field(default_factory=free_port)
    receiver_port: int = field(default_factory=free_port)
    accepted: set[int] = field(default_factory=set)
    kills: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.log = self.folder / "receiver.log"
        self.url = f"http://127.0.0.1:{self.host_port}"

    # ---- Processes -------------------------------------------------------------------------------

    @contextmanager
    def receiver(self) -> Iterator[subprocess.Popen[str]]:
        words = str(self.receiver_port), str(self.log), self.url
        with python_module("tests.processes.mixed_receiver", *words) as (process, line):
            assert line == "ready"
            yield process

    def host(self) -> AbstractContextManager[Server]:
        return server_process(self.folder, self.host_port, STORE, f"http://127.0.0.1:{self.receiver_port}")

    # ---- The rounds ------------------------------------------------------------------------------

    def run(self, rounds: int) -> None:
        with ExitStack() as stack:
            host_life = stack.enter_context(ExitStack())
            receiver_life = stack.enter_context(ExitStack())
            receiver = receiver_life.enter_context(self.receiver())
            host = host_life.enter_context(self.host())
            for name, cap in CAPS.items():
                ask(self.url, "/pool", {"name": name, "maxConcurrency": cap}, "PUT")
            for number in range(rounds):
                self.schedule(number)
                time.sleep(self.random.uniform(0.05, 1.2))  # a random moment is what is wanted here
                if self.random.random() < 0.6:
                    host.process.kill()
                    self.kills.append((time.time(), "host"))
                    host_life.close()
                    host = host_life.enter_context(self.host())
                else:
                    receiver.kill()
                    receiver.wait()
                    self.kills.append((time.time(), "receiver"))
                    receiver_life.close()
                    receiver = receiver_life.enter_context(self.receiver())
            self.wait_until_idle(120)
            assert host.stop() == 0

    def schedule(self, number: int) -> None:
        first = number * JOBS_PER_ROUND
        now = time.time_ns() // 1_000_000
        jobs = [
            {
                "functionPath": "rounds:run",
                "args": {"n": n},
                "scheduledFor": now + self.random.randrange(0, 800),
                "timeoutMs": TIMEOUT_MS,
                "pool": self.random.choice((None, None, "a", "b")),
                "priority": self.random.choice((0, 0, 5, -5)),
                "retry": {"maxRetries": 90, "baseMs": 200, "maxMs": 2_000},
            }
            for n in range(first, first + JOBS_PER_ROUND)
        ]
        results = ask(self.url, "/schedule/batch", {"jobs": jobs})["results"]
        self.accepted.update(n for n, one in enumerate(results, first) if "id" in one)

    def wait_until_idle(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            status = ask(self.url, "/status")
            if status["backlog"] == status["inFlight"] == 0:
                assert status["dead"] == 0, status
                return
            assert time.monotonic() < deadline, f"still busy after {seconds} s: {status}"
            time.sleep(0.1)

    # ---- What must hold --------------------------------------------------------------------------

    def check(self) -> str:
        entries = [json.loads(line) for line in self.log.read_text().splitlines()]
        done = {entry["n"] for entry in entries if entry["what"] == "done"} | self._told_and_killed(entries)
        assert self.accepted <= done, f"lost: {sorted(self.accepted - done)[:10]}"
        begun = [entry for entry in entries if entry["what"] == "begin"]
        leases = [(entry["job"], entry["lease"]) for entry in begun]
        assert len(leases) == len(set(leases)), "a job came twice under one lease"
        self._no_overlap(entries)
        self._no_overrun(entries)
        again = len(begun) - len({entry["job"] for entry in begun})
        return f"{len(self.accepted)} jobs, {len(self.kills)} kills, {len(begun)} deliveries, {again} repeated, 0 lost"

    def _told_and_killed(self, entries: list[dict[str, Any]]) -> set[int]:
        """Jobs whose receiver was killed while it completed them, so that it could not note that the host had heard."""
        last = {entry["n"]: entry for entry in entries}
        deaths = [at for at, who in self.kills if who == "receiver"]
        return {
            n
            for n, entry in last.items()
            if entry["what"] == "telling" and any(entry["at"] <= at <= entry["at"] + TOLD_WITHIN_S for at in deaths)
        }

    def _spans(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Each attempt with the instant it ended at the receiver: by its own word, or by the receiver's death."""
        ends: dict[tuple[str, str], float] = {}
        for entry in entries:
            if entry["what"] != "begin":
                ends.setdefault((entry["job"], entry["lease"]), entry["at"])
        deaths = [at for at, who in self.kills if who == "receiver"]
        spans = []
        for entry in entries:
            if entry["what"] == "begin":
                own = ends.get((entry["job"], entry["lease"]), float("inf"))
                death = min((at for at in deaths if at >= entry["at"]), default=float("inf"))
                spans.append({**entry, "end": min(own, death)})
        return spans

    def _no_overlap(self, entries: list[dict[str, Any]]) -> None:
        by_job: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for span in self._spans(entries):
            by_job[span["job"]].append(span)
        for job, spans in by_job.items():
            for before, after in pairwise(spans):
                lease_end = before["deadline"] + LEASE_MARGIN_S
                free = after["at"] >= min(before["end"], lease_end) or before["n"] % 4 == 3
                assert free, f"{job}: a second attempt inside the lease of the first"

    def _no_overrun(self, entries: list[dict[str, Any]]) -> None:
        for pool, cap in CAPS.items():
            steps = []
            for span in self._spans(entries):
                if span["pool"] == pool:
                    steps += [(span["at"], 1), (min(span["end"], span["deadline"]), -1)]
            running = 0
            for _, step in sorted(steps):
                running += step
                assert running <= cap, f"{running} ran in pool {pool}, its cap is {cap}"


def run(rounds: int, seed: int, folder: Path) -> Rounds:
    made = Rounds(folder, seed)
    made.run(rounds)
    return made


@click.command()
@click.option("--rounds", default=100, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(rounds: int, seed: int) -> None:
    """Kill the host or the receiver in every round; exit 1 if a promise is broken."""
    with tempfile.TemporaryDirectory() as folder:
        click.echo(run(rounds, seed, Path(folder)).check())


if __name__ == "__main__":
    main()
