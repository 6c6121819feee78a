"""Worker processes that break in the middle of a job: it is run elsewhere, or ends dead; other jobs do not suffer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.cli.processes import COMMAND, environment
from tests.processes.breaking import LOG
from tests.processes.server_process import ROOT, TOKEN, ask
from tests.processes.test_workers import PATIENCE_S, served
from tests.waiting import wait_until

LOSSES = 5


@contextmanager
def working(url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`tocsin worker` for one job at a time, with the shortest lease; killed at the end if it still runs."""
    words = ["worker", "tests.processes.breaking:handlers", "--concurrency", "1", "--lease", "1s"]
    env = environment(TOCSIN_URL=url, TOCSIN_TOKEN=TOKEN, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    process = subprocess.Popen(
        [*COMMAND, *words], cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def submit(url: str, path: str, **options: Any) -> str:
    job = {"functionPath": path, "delayMs": 0, "queue": "q", **options}
    answer: dict[str, Any] = ask(url, "/schedule", job)
    return str(answer["id"])


def runs(folder: Path) -> list[dict[str, Any]]:
    log = folder / LOG
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def ended(folder: Path) -> set[str]:
    return {one["id"] for one in runs(folder) if one["what"] == "ended"}


def test_a_job_that_kills_its_worker_is_dead_in_the_end_and_others_run_in_between(tmp_path: Path) -> None:
    """Each worker that died is replaced at once, as whoever watches over processes would do."""
    with served(tmp_path) as url, ExitStack() as stack:
        workers = [stack.enter_context(working(url, tmp_path)) for _ in range(2)]
        wait_until(lambda: len(ask(url, "/workers")["workers"]) == 2)
        submit(url, "exits", id="poison")
        others = []
        for _ in range(LOSSES):
            dead = wait_until(lambda: next((one for one in workers if one.poll() is not None), None))
            workers.remove(dead)
            workers.append(stack.enter_context(working(url, tmp_path)))
            others.append(submit(url, "plain"))
            wait_until(lambda: others[-1] in ended(tmp_path))
        wait_until(lambda: ask(url, "/status")["dead"] == 1)
        [letter] = ask(url, "/dead")["records"]
        history = ask(url, "/history?id=poison")["attempts"]
        assert all(one.poll() is None for one in workers)

    assert (letter["id"], letter["reason"]) == ("poison", "lost")
    assert [one["outcome"] for one in history] == ["lost"] * LOSSES
    begun = [one["id"] for one in runs(tmp_path) if one["what"] == "begun"]
    assert sorted(begun) == sorted(["poison"] * LOSSES + others)
    last = max(n for n, id in enumerate(begun) if id == "poison")
    assert sum(id != "poison" for id in begun[:last]) >= 2, "others run in between, not only after it"


def test_while_a_worker_is_frozen_past_its_lease_its_pool_never_runs_more_than_its_cap(tmp_path: Path) -> None:
    """Counted by what handlers did, each for as long as its lease said that it may."""
    with served(tmp_path) as url, working(url, tmp_path) as a, working(url, tmp_path) as b:
        ask(url, "/pool", {"name": "one", "maxConcurrency": 1}, "PUT")
        wait_until(lambda: len(ask(url, "/workers")["workers"]) == 2)
        ids = [submit(url, "freezes" if n == 3 else "plain", pool="one") for n in range(12)]
        wait_until(lambda: set(ids) <= ended(tmp_path))
        [frozen] = {one["pid"] for one in runs(tmp_path) if one["path"] == "freezes" and one["attempt"] == 1}
        late = a if a.pid == frozen else b
        late.send_signal(signal.SIGCONT)
        wait_until(lambda: sum(one["what"] == "ended" and one["path"] == "freezes" for one in runs(tmp_path)) == 2)
        late.send_signal(signal.SIGTERM)
        _, said = late.communicate(timeout=PATIENCE_S)
        history = ask(url, f"/history?id={ids[3]}")["attempts"]
        status = ask(url, "/status")

    assert late.returncode == 0
    assert said.count(b"stale_settle_rejected: job") == 1
    assert [one["outcome"] for one in history] == ["lost", "done"]
    assert status["backlog"] == status["inFlight"] == status["dead"] == 0
    ends = {(one["id"], one["attempt"]): one["at"] for one in runs(tmp_path) if one["what"] == "ended"}
    spans = sorted(
        (one["at"], min(one["until"], ends[one["id"], one["attempt"]]))
        for one in runs(tmp_path)
        if one["what"] == "begun"
    )
    assert len(spans) == len(ids) + 1
    assert all(before_end <= after_begin for (_, before_end), (after_begin, _) in pairwise(spans))
