"""Chains through workers and callbacks while their host is killed: `python -m tests.processes.chains --jobs 2000`.

Afterwards the log of all runs is held against the promise: every chain is complete, each link ran once or was retried,
none was lost, and each began only when the one before it was done.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import click

from tests.cli.processes import COMMAND, environment
from tests.processes.chained import LOG, PATH
from tests.processes.server_process import ROOT, TOKEN, ask, free_port, receiver_process, server_process
from tests.waiting import wait_until

LINKS = 4
STORE = "chains.db"
POOL = "callbacks"
BATCH = 250
LEASE = "1s"


@dataclass
class Chains:
    """Half of the links are pulled by two worker processes, half are called back. The host is killed `kills` times.

    Unless `mid_callback`, no callback is in flight when it is killed: one that is comes again only when its lease is
    over, which takes 16 s.
    """

    folder: Path
    count: int
    kills: int
    mid_callback: bool
    seed: int
    port: int = field(default_factory=free_port)
    in_flight: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.log = self.folder / LOG
        self.log.touch()
        self.url = f"http://127.0.0.1:{self.port}"

    # ---- Processes -------------------------------------------------------------------------------

    @contextmanager
    def working(self) -> Iterator[None]:
        """Its log goes to a file: nobody reads a pipe here, and a full one would stop it."""
        words = ["worker", "tests.processes.chained:handlers", "--concurrency", "16", "--lease", LEASE]
        env = environment(TOCSIN_URL=self.url, TOCSIN_TOKEN=TOKEN, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}")
        with (self.folder / "workers.log").open("a") as said:
            process = subprocess.Popen([*COMMAND, *words], cwd=self.folder, env=env, stdout=said, stderr=said)
        try:
            yield
        finally:
            process.kill()
            process.wait()

    # ---- The run ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Until nothing is left to do."""
        with ExitStack() as stack:
            origin = stack.enter_context(receiver_process("tests.processes.chained", str(self.folder)))
            life = stack.enter_context(ExitStack())
            host = life.enter_context(server_process(self.folder, self.port, STORE, origin))
            stack.enter_context(self.working())
            stack.enter_context(self.working())
            self.set_pool(paused=True)  # until all chains are there
            for first in range(0, self.count, BATCH):
                chains = [self.chain(number) for number in range(first, min(first + BATCH, self.count))]
                assert all("id" in one for one in ask(self.url, "/schedule/batch", {"jobs": chains})["results"])
            self.set_pool(paused=False)
            for kill in range(self.kills):
                enough = self.count * LINKS * (kill + self.random.uniform(0.3, 0.9)) / (self.kills + 1)
                self.wait_for_lines(2 * enough)
                if not self.mid_callback:
                    self.set_pool(paused=True)
                    wait_until(lambda: ask(self.url, f"/pool?name={POOL}")["inFlight"] == 0, 30)
                host.process.kill()
                host.process.wait()
                life.close()
                self.in_flight += self.leases()
                host = life.enter_context(server_process(self.folder, self.port, STORE, origin))
                self.set_pool(paused=False)
            wait_until(self.drained, 120)
            assert host.stop() == 0

    def chain(self, number: int) -> dict[str, Any]:
        """Its links are pulled or called back, by chance; the first is called back, so that none starts too soon."""
        job: dict[str, Any] = {}
        for link in range(LINKS - 1, -1, -1):
            job = {"functionPath": PATH, "args": {"chain": number, "link": link}, **({"then": [job]} if job else {})}
            if link and self.random.random() < 2 / 3:
                job["queue"] = f"q{link}"
            else:
                job |= {"pool": POOL, "timeoutMs": 1_000}
        return {**job, "delayMs": 0}

    def set_pool(self, *, paused: bool) -> None:
        ask(self.url, "/pool", {"name": POOL, "maxConcurrency": 32, "paused": paused}, "PUT")

    def wait_for_lines(self, count: float) -> None:
        wait_until(lambda: self.log.read_bytes().count(b"\n") >= count, 60)

    def leases(self) -> int:
        """Attempts that were alive when the host died, read without it."""
        with sqlite3.connect(f"file:{self.folder / STORE}?mode=ro", uri=True) as connection:
            sql = "SELECT count(*) FROM kv WHERE key >= ? AND key < ?"
            ((count,),) = connection.execute(sql, (b"lease/", b"lease0"))
        return int(count)

    def drained(self) -> bool:
        status = ask(self.url, "/status")
        assert status["dead"] == 0, status
        return bool(status["backlog"] == status["inFlight"] == 0 and not ask(self.url, "/pending?prefix=")["pending"])

    # ---- What must hold --------------------------------------------------------------------------

    def check(self) -> str:
        begun: Counter[tuple[int, int]] = Counter()
        done: set[tuple[int, int]] = set()
        leases: set[tuple[str, str]] = set()
        by: Counter[str] = Counter()
        for line in self.log.read_text().splitlines():
            entry = json.loads(line)
            chain, link = entry["chain"], entry["link"]
            if entry["what"] == "done":
                done.add((chain, link))
                continue
            begun[chain, link] += 1
            by[entry["by"].split()[0]] += 1
            before = {"chain": chain, "link": link - 1} if link else None
            assert not link or (chain, link - 1) in done, f"link {link} of chain {chain} began before its parent ended"
            assert entry["before"] == before, f"link {link} of chain {chain} was given {entry['before']}"
            lease = entry["job"], entry["lease"]
            assert lease not in leases, f"{lease} ran twice under one lease"
            leases.add(lease)
        every = {(chain, link) for chain in range(self.count) for link in range(LINKS)}
        assert set(begun) == done == every, f"lost: {sorted(every - done)[:10]}, of nobody: {sorted(done - every)[:10]}"
        again = begun.total() - len(every)
        assert again <= self.in_flight, f"{again} were repeated, {self.in_flight} were in flight at a kill"
        return (
            f"{self.count} chains of {LINKS} complete, {len(every)} jobs ({by['receiver']} called back, {by['worker']} "
            f"pulled), {self.kills} kills with {self.in_flight} attempts in flight, {again} repeated, 0 lost"
        )


@click.command()
@click.option("--jobs", default=2_000, show_default=True, help=f"In chains of {LINKS}.")
@click.option("--kills", default=4, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(jobs: int, kills: int, seed: int) -> None:
    """Kill the host at random moments, also in the middle of callbacks; exit 1 if the promise is broken."""
    with tempfile.TemporaryDirectory() as folder:
        chains = Chains(Path(folder), jobs // LINKS, kills, mid_callback=True, seed=seed)
        began = time.monotonic()
        chains.run()
        click.echo(f"{chains.check()}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
