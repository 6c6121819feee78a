"""A `SyncClient` whose server is killed again and again under load: `python -m tests.processes.clients --kills 20`.

Afterwards what was answered is held against what is stored: no job that was answered is missing, none is there twice,
and every settlement that was answered counts once.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click

from tests.processes.server_process import TOKEN, free_port, server_process
from tocsin import Job, SyncClient, SyncScheduler, TocsinError

ORIGIN = "http://127.0.0.1:9"
BETWEEN_S = 1.0


@dataclass
class Load:
    """What threads asked for, and were answered."""

    jobs: SyncScheduler
    scheduled: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)

    def schedule(self) -> None:
        while not self.over.is_set():
            began = time.monotonic()
            try:
                self.scheduled.append(self.jobs.run_after("1h", "a:b", queue="later"))
                many = self.jobs.submit_many([Job("a:b", after="1h", options={"queue": "later"})] * 3)
                self.scheduled += [one.id for one in many if not isinstance(one, TocsinError)]
            except TocsinError as error:
                self.failed.append(f"{type(error).__name__}: {error.message}")
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def work(self) -> None:
        """Schedule a job, claim it and settle it. A claim is sent once, so it may fail."""
        while not self.over.is_set():
            try:
                self.jobs.run_after(0, "a:b", queue="now", keep_result="1h")
                for job in self.jobs.claim("now", wait=1):
                    if self.jobs.complete(job.id, job.lease, result=1):
                        self.settled.append(job.id)
            except TocsinError:
                continue  # its lease ends, and it comes again


def run(folder: Path, kills: int, threads: int) -> str:
    """Return what was seen. AssertionError if anything was lost, or done twice."""
    port = free_port()
    with SyncClient(f"http://127.0.0.1:{port}", token=TOKEN, patience_s=60) as client, ExitStack() as stack:
        load = Load(client.scheduler("load"))
        running = [threading.Thread(target=load.schedule) for _ in range(threads)]
        running += [threading.Thread(target=load.work) for _ in range(2)]
        life = stack.enter_context(ExitStack())
        server = life.enter_context(server_process(folder, port, "jobs.db", ORIGIN))
        for one in running:
            one.start()
        try:
            for _ in range(kills):
                time.sleep(BETWEEN_S)
                server.process.kill()
                life.close()
                life = stack.enter_context(ExitStack())
                server = life.enter_context(server_process(folder, port, "jobs.db", ORIGIN))
            time.sleep(BETWEEN_S)
        finally:
            load.over.set()
            for one in running:
                one.join()
        stored = [one.id for one in load.jobs.list_all(queue="later")]
        assert sorted(stored) == sorted(load.scheduled), set(stored) ^ set(load.scheduled)
        assert len(load.settled) == len(set(load.settled)), "a job was settled twice"
        assert all(load.jobs.result(id, 0) == 1 for id in load.settled)
        assert not load.failed, load.failed[0]
    return (
        f"{kills} kills: {len(stored)} jobs scheduled, none lost, none twice; {len(load.settled)} settled, each once; "
        f"the longest call took {load.slowest_s:.1f} s"
    )


@click.command()
@click.option("--kills", default=20, show_default=True)
@click.option("--threads", default=8, show_default=True)
def main(kills: int, threads: int) -> None:
    """Kill the server again and again."""
    with tempfile.TemporaryDirectory() as folder:
        print(run(Path(folder), kills, threads))


if __name__ == "__main__":
    main()
