"""Real worker processes: stopped by signals, frozen past their lease."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.processes import COMMAND, environment, tocsin_serve
from tests.processes.server_process import ROOT, TOKEN, ask
from tests.waiting import wait_until

PATIENCE_S = 90.0
"""Of what is polled: where there is nothing to wait for it costs nothing, and machines may be busy."""


@contextmanager
def working(url: str, *words: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """`tocsin worker`; killed at the end if it still runs."""
    process = subprocess.Popen(
        [*COMMAND, "worker", "tests.processes.working:handlers", "--json", *words],
        cwd=cwd,
        env=environment(
            TOCSIN_URL=url,
            TOCSIN_TOKEN=TOKEN,
            PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with tocsin_serve("--store", "memory:", cwd=folder, TOCSIN_TOKENS=f"test:admin:{TOKEN}") as server:
        yield server.url()


def test_sigterm_drains_and_a_second_one_gives_back_what_runs(tmp_path: Path) -> None:
    """No claims from that instant, what runs settles, exit code 0."""
    with served(tmp_path) as url, working(url, cwd=tmp_path) as first:
        for n in (1, 2, 3):
            ask(url, "/schedule", {"functionPath": "sleep", "args": {"n": n, "s": 0.7}, "delayMs": 0, "queue": "q"})
        wait_until(lambda: all((tmp_path / f"began-{n}").exists() for n in (1, 2, 3)))
        began = time.monotonic()
        first.send_signal(signal.SIGTERM)
        wait_until(lambda: {"stopping", "stopped"} & {one["status"] for one in ask(url, "/workers")["workers"]})
        ask(
            url,
            "/schedule",
            {"functionPath": "sleep", "args": {"n": 4, "s": 60}, "delayMs": 0, "queue": "q", "id": "d"},
        )
        out, said = first.communicate(timeout=PATIENCE_S)
        assert first.returncode == 0, said
        assert time.monotonic() - began < 20, "jobs of 0.7 s end by themselves, before the drain is over"
        assert not (tmp_path / "began-4").exists()
        statuses = [json.loads(line)["status"] for line in out.splitlines()]
        assert statuses[0] == "idle" and statuses[-1] == "stopped"
        assert ask(url, "/status")["backlog"] == 1

        with working(url, cwd=tmp_path) as second:
            wait_until((tmp_path / "began-4").exists)
            second.send_signal(signal.SIGTERM)
            wait_until(lambda: "stopping" in [one["status"] for one in ask(url, "/workers")["workers"]])
            second.send_signal(signal.SIGTERM)
            _, said = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 130, said
        assert "1 job had to be interrupted" in said
        record = ask(url, "/get?id=d")["record"]
        assert (record["state"], record["attempts"], record["lastError"]["message"]) == (
            "waiting", 0, "interrupted by shutdown",
        )  # fmt: skip


def test_a_worker_frozen_past_its_lease_says_nothing_that_counts(tmp_path: Path) -> None:
    """Its late settlement is refused, the job ran elsewhere, and its pool had one holder at a time."""
    with (
        served(tmp_path) as url,
        working(url, "--lease", "1s", cwd=tmp_path) as a,
        working(url, "--lease", "1s", cwd=tmp_path) as b,
    ):
        wait_until(lambda: len(ask(url, "/workers")["workers"]) == 2)
        job = {
            "functionPath": "thread",
            "args": {"until": "go"},
            "delayMs": 0,
            "queue": "q",
            "pool": "p",
            "id": "frozen",
        }
        ask(url, "/schedule", {**job, "keepResultMs": 60_000})
        holder = int(
            wait_until(lambda: (tmp_path / "attempt-1").read_text() if (tmp_path / "attempt-1").exists() else None)
        )
        frozen, other = (a, b) if a.pid == holder else (b, a)
        frozen.send_signal(signal.SIGSTOP)
        try:
            pools: list[int] = []

            def ran_elsewhere() -> bool:
                pools.append(ask(url, "/pool?name=p")["inFlight"])
                return (tmp_path / "attempt-2").exists()

            wait_until(ran_elsewhere)
            (tmp_path / "go").touch()
            result = wait_until(lambda: ask(url, "/result?id=frozen").get("result"))
        finally:
            frozen.send_signal(signal.SIGCONT)
        assert result == f"by {other.pid}"
        assert max(pools) <= 1
        frozen.send_signal(signal.SIGTERM)
        _, said = frozen.communicate(timeout=PATIENCE_S)
        assert frozen.returncode == 0, said
        assert said.count("lease_lost: job frozen") == 1
        assert said.count("stale_settle_rejected: job frozen") == 1
        assert ask(url, "/pool?name=p")["inFlight"] == 0
        assert [one["outcome"] for one in ask(url, "/history?id=frozen")["attempts"]] == ["lost", "done"]
