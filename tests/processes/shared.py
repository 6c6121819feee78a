"""Four uvicorn workers on one store under load, whose holder is killed every few seconds:
`python -m tests.processes.shared --seconds 120`.

Requests that schedule, list and cancel go to random workers. Afterwards the receiver's own record is held against what
the app answered: nothing accepted is lost, nothing comes twice within a lease, nothing cancelled comes back.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

import click

from tests.cli.processes import environment
from tests.processes.callers import Callers
from tests.processes.server_process import ROOT, free_port, receiver_process
from tests.waiting import wait_until
from tocsin.storage.sqlite.lock import holder_of

LEASE_S: Final = 16.0
"""The callbacks' deadline of one second, and fifteen more."""
SLACK_S: Final = 1.0
"""Between a claim and the arrival of its callback."""
TAKE_OVER_S: Final = 2.0
SERVERS: Final = {
    "uvicorn": ["-m", "uvicorn", "tests.processes.shared_app:app", "--no-access-log", "--log-level", "warning",
                "--workers", "4", "--port"],
    "gunicorn": ["-m", "gunicorn", "tests.processes.shared_app:app", "-k", "uvicorn_worker.UvicornWorker",
                 "-w", "4", "--preload", "-b"],
    "granian": ["-m", "granian", "--interface", "asgi", "tests.processes.shared_app:app", "--workers", "4",
                "--respawn-failed-workers", "--port"],
}  # fmt: skip


@dataclass
class Run:
    """One run, and what is known of each job."""

    folder: Path
    port: int
    random: Random
    how: signal.Signals
    accepted: dict[str, float] = field(default_factory=dict)
    perhaps_cancelled: set[str] = field(default_factory=set)
    cancelled: dict[str, float] = field(default_factory=dict)
    """By job, when its cancel was answered, of those that had not started."""
    kills: list[float] = field(default_factory=list)
    numbers: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        self.callers = Callers(self.port, self.random)

    async def act(self) -> None:
        dice = self.random.random()
        if dice < 0.5 or not self.accepted:
            job_id = f"job-{next(self.numbers)}"
            said = await self.callers.get(f"/schedule?id={job_id}&delay={self.random.uniform(0, 3):.3f}")
            if said.status == 200:
                self.accepted[job_id] = time.time()
        elif dice < 0.75:
            await self.callers.get("/list")
        else:
            job_id = self.random.choice(list(self.accepted)[-100:])
            self.perhaps_cancelled.add(job_id)
            said = await self.callers.get(f"/cancel?id={job_id}")
            if said.status == 200 and said.body["cancelled"] and not said.body["wasRunning"]:
                self.cancelled[job_id] = time.time()

    async def kill_holders(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            pid, _ = holder_of(self.folder / "shared.db.lock")
            if pid is not None:
                self.kills.append(time.time())
                os.kill(pid, self.how)

    async def load(self, rate: float, seconds: float, every_s: float) -> None:
        killing = asyncio.ensure_future(self.kill_holders(every_s))
        await self.callers.steadily(rate, seconds, self.act)
        killing.cancel()
        self.callers.close()

    def report(self, came: list[tuple[float, str, int]]) -> bool:
        """Print what was promised and what was kept. Return whether all was."""
        by_job: dict[str, list[float]] = {}
        ids = {webhook_id.partition(":")[0] for _, webhook_id, _ in came}
        for at, webhook_id, _ in came:
            by_job.setdefault(webhook_id, []).append(at)
        lost = [job_id for job_id in self.accepted if job_id not in ids and job_id not in self.perhaps_cancelled]
        doubled = [
            one for one, times in by_job.items() for a, b in pairwise(sorted(times)) if b - a < LEASE_S - SLACK_S
        ]
        back = [one for at, one, _ in came if at > self.cancelled.get(one.partition(":")[0], at) + SLACK_S]
        answers = self.callers.answers
        quiet = [one.took for one in answers if one.status == 200 and not self._near_a_kill(one.began)]
        ends = sorted(one.began + one.took for one in answers if one.status == 200)
        gap = max((b - a for a, b in pairwise(ends)), default=0.0)
        p50, p99 = (sorted(quiet)[int(len(quiet) * share)] * 1000 for share in (0.5, 0.99))
        longest = max(one.took for one in answers if one.status == 200)
        said = Counter("died with its process" if one.status is None else one.status for one in answers)
        click.echo(f"requests {len(answers)}, answered: {dict(said)}; the holder ended {len(self.kills)} times")
        click.echo(f"accepted {len(self.accepted)}, callbacks {len(came)}, cancelled in time {len(self.cancelled)}")
        click.echo(f"lost {len(lost)}, doubled within a lease {len(doubled)}, cancelled and come back {len(back)}")
        click.echo(f"outside take-overs: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        click.echo(f"longest gap {gap:.2f} s, longest request that was answered {longest:.2f} s")
        return not (lost or doubled or back) and gap < TAKE_OVER_S

    def _near_a_kill(self, at: float) -> bool:
        return any(-0.5 < at - kill < TAKE_OVER_S for kill in self.kills)


def _said(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def _idle(url: str) -> bool:
    try:
        return bool(_said(f"{url}/status")["left"] == 0)
    except OSError:
        return False


@click.command()
@click.option("--seconds", default=120.0, help="How long to send requests.")
@click.option("--rate", default=200.0, help="Requests a second.")
@click.option("--every", default=5.0, help="Seconds between two ends of the holder.")
@click.option("--signal", "how", default="SIGKILL", type=click.Choice(["SIGKILL", "SIGSTOP", "SIGTERM"]))
@click.option("--server", default="uvicorn", type=click.Choice(list(SERVERS)))
@click.option("--seed", default=0)
def main(seconds: float, rate: float, every: float, how: str, server: str, seed: int) -> None:
    """Run the app, its receiver and its callers, and end the holder again and again."""
    with tempfile.TemporaryDirectory() as name, receiver_process("tests.processes.shared_receiver") as origin:
        folder, port = Path(name), free_port()
        at = f"127.0.0.1:{port}" if server == "gunicorn" else str(port)
        process = subprocess.Popen(
            [sys.executable, *SERVERS[server], at], cwd=folder, start_new_session=True,
            env=environment(PYTHONPATH=str(ROOT), ORIGIN=origin),
        )  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: _idle(url), 60)
            run = Run(folder, port, Random(seed), signal.Signals[how])
            asyncio.run(run.load(rate, seconds, every))
            wait_until(lambda: _idle(url), 120)
            time.sleep(LEASE_S + SLACK_S)  # what would come twice has come by then
            came = _said(f"{origin}/came")
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: nobody but it and its workers
            process.wait()
        assert not came["false"], "callbacks that do not verify"
        if not run.report([(at, one, attempt) for at, one, attempt in came["came"]]):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
