"""A disk that fills while a real server takes and fires 2,000 jobs, and is freed: nothing accepted is lost."""

from __future__ import annotations

import json
import sqlite3
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import tocsin_serve
from tests.processes.server_process import TOKEN
from tests.processes.test_sigkill import STORE, Receiver, assert_nothing_left, receiving
from tests.storage.disks import SmallDisk, small_disk

JOBS = 2_000
BATCH = 25
FILLED_AT = 600
REFUSALS = 20
DEADLINE_S = 60.0


def ask(url: str, body: object = None) -> tuple[int, Any]:
    """Status and JSON; refusals are answers, too."""
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {TOKEN}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def batch_of(first: int) -> dict[str, Any]:
    """Named, so that the same batch can be sent again. Half of them are due at once, half while the disk is full."""
    now = time.time_ns() // 1_000_000
    jobs = [
        {
            "functionPath": "disk:run",
            "id": f"job-{n}",
            "onConflict": "keep",
            "args": {"text": "x" * 2_000},
            "scheduledFor": now + 500 * (n % 2),
            "retry": {"baseMs": 100, "maxMs": 500},
        }
        for n in range(first, first + BATCH)
    ]
    return {"jobs": jobs}


def wait_for_answer(url: str, what: str, found: Any) -> Any:
    """Poll a URL until its answer is as wanted."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        status, answer = ask(url)
        if found(status, answer):
            return answer
        assert time.monotonic() < deadline, f"not {what} within {DEADLINE_S} s: {answer}"
        time.sleep(0.05)


@pytest.mark.anyio
async def test_a_disk_that_fills_during_two_thousand_jobs_and_is_freed_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        fill_and_free(tmp_path, disk)
        await assert_nothing_left(disk.folder, STORE)
        with closing(sqlite3.connect(disk.folder / STORE)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def fill_and_free(folder: Path, disk: SmallDisk) -> None:
    with receiving() as receiver:
        settings = {
            "TOCSIN_STORE": f"sqlite:///{disk.folder / STORE}",
            "TOCSIN_ORIGIN_URL": receiver.url,
            "TOCSIN_SECRETS": "whsec_" + "a2V5" * 8,
            "TOCSIN_TOKENS": f"test:admin:{TOKEN}",
        }
        with tocsin_serve(cwd=folder, **settings) as server:
            url = server.url()
            accepted, refused = schedule_all(url, receiver, disk)
            assert set(refused) == {(507, "STORE_FULL")}
            assert len(accepted) == JOBS

            receiver.wait_for(JOBS, DEADLINE_S)
            wait_for_answer(f"{url}/status", "idle", lambda status, one: one.get("backlog") == one.get("inFlight") == 0)
            assert receiver.stats()["count"] == JOBS, "each once: no host was lost"
            wait_for_answer(f"{url}/readyz", "ready", lambda status, one: status == 200)
            wait_for_answer(f"{url}/status", "green", lambda status, one: one["health"] == "green" and not one["dead"])
            assert (disk.folder / f"{STORE}.reserve").exists(), "the reserve is made anew"
            assert server.stop() == 0


def schedule_all(url: str, receiver: Receiver, disk: SmallDisk) -> tuple[set[str], Counter[tuple[int, str]]]:
    """Batch after batch until all are accepted; the disk fills before one of them, and is freed some refusals later."""
    accepted: set[str] = set()
    refused: Counter[tuple[int, str]] = Counter()
    filled = freed = False
    first = 0
    while first < JOBS:
        if first == FILLED_AT and not filled:
            disk.fill()
            filled = True
        status, answer = ask(f"{url}/schedule/batch", batch_of(first))
        if status == 200:
            accepted |= {result["id"] for result in answer["results"]}
            first += BATCH
            continue
        refused[status, answer["error"]["code"]] += 1
        assert "free some" in answer["error"]["message"]
        if not freed and refused.total() >= REFUSALS:
            says_that_it_is_full(url)
            starts_nothing(url, receiver)
            disk.free()
            freed = True
        time.sleep(0.01)
    return accepted, refused


def says_that_it_is_full(url: str) -> None:
    status, answer = ask(f"{url}/readyz")
    assert (status, answer["error"]["code"]) == (507, "STORE_FULL")
    status, answer = ask(f"{url}/status")
    assert (status, answer["health"]) == (200, "red")
    assert "no space is left" in answer["trouble"]


def starts_nothing(url: str, receiver: Receiver) -> None:
    """What was in flight is settled; what is due waits, and says why."""
    wait_for_answer(f"{url}/status", "settled", lambda status, one: one["inFlight"] == 0)
    before = receiver.stats()["count"]
    time.sleep(0.7)  # those due in the meantime would go now
    assert receiver.stats()["count"] == before
    status = ask(f"{url}/status")[1]
    assert (status["inFlight"], status["backlog"] > 0) == (0, True)
    waiting = ask(f"{url}/list?limit=1")[1]["records"][0]
    assert (waiting["state"], waiting["attempts"]) == ("waiting", 0)
    reasons = ask(f"{url}/why?id={waiting['id']}")[1]["reasons"]
    assert "STORE_FULL" in {reason["code"] for reason in reasons}
