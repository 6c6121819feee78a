"""`tocsin top`: pages that fit any terminal, rates that are right, and a terminal that is left as it was."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.cli.conftest import Run
from tests.cli.processes import COMMAND, environment, tocsin_serve
from tocsin.actors.scheduler.model.activity import Activity, ActivityMinute
from tocsin.actors.scheduler.model.records import (
    HealthReason,
    LanesStatus,
    PoolStatus,
    Queue,
    Status,
    WorkerRecord,
)
from tocsin.cli.top_look import InstanceLine, Look, Rates, rates_of, trouble
from tocsin.cli.top_page import LEAST_HEIGHT, LEAST_WIDTH, page

NOW = 1_800_000_000_000
NAMES = st.sampled_from(["a", "tenant-" * 18, "日本語の名前" * 9, "with\x1b[2Jescape"])


def status(health: str = "green", **more: Any) -> Status:
    given: dict[str, Any] = {
        "backlog": 3, "in_flight": 1, "due": 2, "oldest_due_ms": 900, "dead": 4, "lanes": LanesStatus(1, 64),
        "health": health, "pools": (),
    }  # fmt: skip
    return Status(**given | more)


def looked(names: Sequence[str] = ("a",), count: int = 0, **more: Any) -> Look:
    pools = [PoolStatus(f"{names[0]}-{n}", n % 4, 3, n, n == count - 1) for n in range(count)]
    reasons = [HealthReason("X", "something is wrong " * 9, NOW - 5_000)] * min(count, 5)
    lines = [InstanceLine(name, 10**6, 2, 3, paused=False, status=status("amber")) for name in names]
    workers = [
        WorkerRecord(
            id=f"{names[0]}-{n}", hostname="h", pid=1, queues="*", status="busy", started_at=NOW, heartbeat_at=NOW - n,
            concurrency=4, lost=n == 0,
        )
        for n in range(count)
    ]  # fmt: skip
    return Look(
        at=NOW, name=names[0], status=status(pools=pools, reasons=reasons), rates=Rates(1, 2, 3, 4, 5, 6),
        instances=lines, queues=[Queue(names[0], 5, 10_000, 3, 0, 10**9)] * count, workers=workers, **more,
    )  # fmt: skip


@given(
    st.lists(NAMES, min_size=1, max_size=30),
    st.integers(0, 40),
    st.integers(20, 200),
    st.integers(5, 80),
    st.booleans(),
)
def test_a_page_fits_every_terminal(names: list[str], count: int, width: int, height: int, lost: bool) -> None:
    lines = page(
        looked(names, count), "http://127.0.0.1:8321/" + "x" * 60, width, height, lost="gone " * 40 if lost else ""
    )

    assert {cell_len(line.plain) for line in lines} <= {max(width, LEAST_WIDTH)}
    assert len(lines) <= max(height, LEAST_HEIGHT)
    assert not any("\x1b" in line.plain or "\n" in line.plain for line in lines)


def test_a_page_says_in_words_what_it_says_in_colours_and_what_is_not_shown() -> None:
    said = "\n".join(line.plain for line in page(looked(["a", "b"], 9), "http://h", 80, 24, lost="as it was 9 s ago"))
    assert "● GREEN  a" in said
    assert "▲ b" in said
    assert "as it was 9 s ago" in said
    assert re.search(r"POOLS  \+\d more", said)
    assert "PAUSED" in said and "LOST" in said
    empty = Look(at=NOW, name="a", status=status(), rates=Rates())
    assert "nothing waits" in page(empty, "http://h", 80, 24)[-1].plain


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 59_999))
def test_rates_are_those_of_the_last_minute(before: int, present: int, passed: int) -> None:
    at = NOW - NOW % 60_000
    minutes = [ActivityMinute(at - 60_000, done=before), ActivityMinute(at, done=present, late_p95_ms=7)]
    rates = rates_of(Activity(since=0, now=at + passed, minutes=minutes))
    assert rates.done == pytest.approx((present + before * (60_000 - passed) / 60_000) / 60)
    assert (rates.failed, rates.late_p95_ms, rates.took_p95_ms) == (0, 7, None)


def test_rates_of_a_server_that_has_just_begun_are_those_since_then() -> None:
    at = NOW - NOW % 60_000
    assert rates_of(Activity(since=at, now=at + 10_000, minutes=[ActivityMinute(at, done=50)])).done == 5
    assert rates_of(Activity(since=at, now=at, minutes=[])) == Rates()


def test_instances_in_trouble_come_first() -> None:
    lines = [
        InstanceLine("unseen", 9, 9, 9, False),
        InstanceLine("well", 9, 0, 0, False, status()),
        InstanceLine("late", 1, 0, 0, False, status(oldest_due_ms=10**6)),
        InstanceLine("amber", 0, 0, 0, False, status("amber")),
        InstanceLine("red", 0, 0, 0, False, status("red")),
    ]
    assert [one.name for one in sorted(lines, key=trouble)] == ["red", "amber", "late", "well", "unseen"]


def test_one_look_is_printed_and_the_screen_is_left_as_it_was(run: Run, tmp_path: Path) -> None:
    with tocsin_serve(
        "--store", "sqlite:///j.db", "--insecure", "--origin-url", "http://127.0.0.1:9", cwd=tmp_path
    ) as server:
        url = server.url()
        run("schedule", "p", "--queue", "mail", "--url", url, "--instance", "tenant-a")
        told = run("top", "--url", url)
        assert (told.exit_code, "● GREEN  tenant-a" in told.stdout, "mail" in told.stdout) == (0, True, True)
        assert run("top", "--url", url, "--once", "--json").stdout.startswith('{"at":')
        ended, said = on_a_terminal(tmp_path, url, "tenant-a", b"q")
        assert ended == 0
        assert "GREEN" in said
        assert said.rindex("\x1b[?1049l") > said.index("\x1b[?1049h")
        assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l")
        ended, said = on_a_terminal(tmp_path, url, "tenant-a", None)
        assert (ended, "\x1b[?1049l" in said) == (130, True)


def on_a_terminal(cwd: Path, url: str, words: str, key: bytes | None) -> tuple[int, str]:
    """Run it on a terminal; once it shows these words, press a key, or interrupt it. Exit code and output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "top", "--url", url], cwd=cwd, env=environment(TERM="xterm-256color"), stdin=theirs, stdout=theirs,
        stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said, end = b"", time.monotonic() + 30
    try:
        while words.encode() not in said and time.monotonic() < end:
            said += _read(ours, end)
        if key is None:
            process.send_signal(signal.SIGINT)
        else:
            os.write(ours, key)
        while piece := _read(ours, end):
            said += piece
        return process.wait(30), said.decode("utf-8", "replace")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read(number: int, end: float) -> bytes:
    """What is written until then; nothing at its end."""
    if not select.select([number], [], [], max(0.0, end - time.monotonic()))[0]:
        raise AssertionError("it wrote nothing in time")
    try:
        return os.read(number, 65_536)
    except OSError:  # how Linux says that nobody has the other end any more
        return b""
