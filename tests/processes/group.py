"""A group of 10,000 members while its host is killed ten times: `python -m tests.processes.group --members 10000`.

Afterwards the log of all runs is held against the promise: what follows began exactly once, after every member had run,
and was told how many they were.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import click

from tests.processes.grouped import DONE, LOG, MEMBER
from tests.processes.server_process import ask, free_port, receiver_process, server_process
from tests.waiting import wait_until

STORE = "group.db"
GROUP = "all-of-them"
BATCH = 500


@dataclass
class Fan:
    """Members are scheduled while others run, a few are retried, and the host is killed at any moment, while members
    join too."""

    folder: Path
    members: int
    kills: int
    seed: int
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.log = self.folder / LOG
        self.log.touch()
        self.url = f"http://127.0.0.1:{self.port}"

    def run(self) -> None:
        """Until what follows has run and nothing is left to do."""
        with ExitStack() as stack:
            origin = stack.enter_context(receiver_process("tests.processes.grouped", str(self.folder)))
            life = stack.enter_context(ExitStack())
            host = life.enter_context(server_process(self.folder, self.port, STORE, origin))
            ask(self.url, "/groups", {"name": GROUP, "then": [{"functionPath": DONE, "timeoutMs": 1_000}]})
            at = sorted(self.random.uniform(0, 1) for _ in range(self.kills))
            joined, kill = 0, 0
            while joined < self.members or kill < self.kills:
                if joined < self.members:
                    self.join(joined)
                    joined = min(joined + BATCH, self.members)
                    if joined == self.members:
                        ask(self.url, f"/groups/{GROUP}/seal", {})
                if kill < self.kills and (self.ran() >= at[kill] * self.members or joined == self.members):
                    host.process.kill()
                    host.process.wait()
                    life.close()
                    host = life.enter_context(server_process(self.folder, self.port, STORE, origin))
                    kill += 1
            wait_until(self.is_over, 180)
            time.sleep(1)  # a second start would come at once
            self.group = ask(self.url, f"/groups/{GROUP}")
            assert host.stop() == 0

    def join(self, first: int) -> None:
        """Give each member an id, so that a batch whose answer was lost can be sent again."""
        jobs = [
            {
                "id": f"m{n}", "functionPath": MEMBER, "args": {"n": n, "fails": int(self.random.random() < 0.02)},
                "delayMs": 0, "timeoutMs": 1_000, "group": GROUP, "retry": {"baseMs": 100},
            }
            for n in range(first, min(first + BATCH, self.members))
        ]  # fmt: skip
        assert all("id" in one for one in ask(self.url, "/schedule/batch", {"jobs": jobs})["results"])

    def ran(self) -> int:
        return self.log.read_bytes().count(b"\n")

    def is_over(self) -> bool:
        status = ask(self.url, "/status")
        assert status["dead"] == 0, status
        return bool(status["backlog"] == status["inFlight"] == 0)

    def check(self) -> str:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        runs = Counter(line["n"] for line in lines if line["what"] == "member" and line["ok"])
        ends = [(place, line) for place, line in enumerate(lines) if line["what"] == "done"]
        assert set(runs) == set(range(self.members)), f"{self.members - len(runs)} members have never run"
        assert len({line["job"] for _, line in ends}) == 1, f"what follows was started {len(ends)} times"
        last = max(place for place, line in enumerate(lines) if line["what"] == "member")
        assert ends[0][0] > last, "what follows began before the last member had ended"
        told = ends[0][1]["parent"]
        counts = {"members": self.members, "done": self.members, "dead": 0, "cancelled": 0, "expired": 0}
        assert told == {"id": GROUP, "group": True, "result": counts}, told
        assert self.group["state"] == "done" and self.group["open"] == 0, self.group
        return (
            f"{self.members} members, {runs.total()} runs of them that succeeded, {self.kills} kills; what follows "
            f"started once, after the last, called {len(ends)} times"
        )


@click.command()
@click.option("--members", default=10_000, show_default=True)
@click.option("--kills", default=10, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(members: int, kills: int, seed: int) -> None:
    """Kill the host at random moments; exit 1 if the promise is broken."""
    with tempfile.TemporaryDirectory() as folder:
        fan = Fan(Path(folder), members, kills, seed)
        began = time.monotonic()
        fan.run()
        click.echo(f"{fan.check()}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
