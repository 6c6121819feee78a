"""Three real processes on one store, whose holder is killed, stopped, blocked or told to end."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import DEADLINE_S, environment
from tests.processes.server_process import ROOT
from tocsin.storage.sqlite.lock import holder_of

TAKE_OVER_S = 2.0


class Sharer:
    """A process of the store."""

    def __init__(self, store: str, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.sharing_process", store], cwd=cwd,
            env=environment(PYTHONPATH=str(ROOT)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = int(self.hear()["pid"])

    def tell(self, words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def ask(self, words: str) -> dict[str, Any]:
        self.tell(words)
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Sharers:
    """The processes, and which of them holds the store."""

    def __init__(self, folder: Path, store: str, several: list[Sharer]) -> None:
        self.folder, self.store, self.all = folder, store, several

    def holder(self) -> Sharer:
        pid, _ = holder_of(self.folder / f"{self.store}.lock")
        (found,) = [one for one in self.all if one.pid == pid]
        return found

    def others(self) -> list[Sharer]:
        holder = self.holder()
        return [one for one in self.all if one is not holder]


@contextmanager
def sharers(folder: Path, number: int = 3, store: str = "jobs.db") -> Iterator[Sharers]:
    with ExitStack() as stack:
        several = []
        for _ in range(number):
            several.append(Sharer(store, folder))
            stack.callback(several[-1].end)
        yield Sharers(folder, store, several)


def test_all_serve_and_when_the_holder_is_killed_one_takes_over(tmp_path: Path) -> None:
    with sharers(tmp_path) as several:
        ids = [one.ask(f"schedule job-{n}")["said"] for n, one in enumerate(several.all)]
        assert all(one.ask("ids")["said"] == ids for one in several.all)
        for name in ("jobs.db.sock", "jobs.db.lock"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        dead, (second, third) = several.holder(), several.others()
        third.tell("claim 60")
        second.tell("minted 200")
        os.kill(dead.pid, signal.SIGKILL)
        ids += second.hear()["said"]
        asked = second.ask("ids")
        assert asked["said"] == sorted(ids), "each once, wherever the kill came"
        assert second.ask("push")["said"]
        assert len(third.hear()["said"]) == 1, "a claim that waited went on waiting at the next holder"
        assert several.holder() in (second, third)
        assert [one.ask("ready")["said"] for one in (second, third)] == [True, True]


def test_a_holder_that_was_stopped_by_a_signal_is_ended_and_replaced(tmp_path: Path) -> None:
    with sharers(tmp_path) as several:
        stopped, (second, third) = several.holder(), several.others()
        os.kill(stopped.pid, signal.SIGSTOP)
        asked = second.ask("schedule after")
        assert asked["said"] == "after" and asked["seconds"] < TAKE_OVER_S
        assert stopped.process.wait(DEADLINE_S) == -signal.SIGKILL
        assert third.ask("ids")["said"] == ["after"]


def test_a_holder_whose_loop_is_blocked_is_waited_for(tmp_path: Path) -> None:
    with sharers(tmp_path, 2) as several:
        busy, (second,) = several.holder(), several.others()
        busy.tell("block 2.5")
        asked = second.ask("schedule later")
        assert asked["said"] == "later"
        assert busy.hear()["said"] == "done"
        assert several.holder() is busy


def test_a_holder_that_ends_in_order_hands_over(tmp_path: Path) -> None:
    with sharers(tmp_path) as several:
        ending, (second, third) = several.holder(), several.others()
        assert ending.process.stdin is not None
        ending.process.stdin.close()
        asked = [second.ask("set_pool 3"), third.ask("minted 20")]
        assert [one.get("error") for one in asked] == [None, None]
        assert sum(one["seconds"] for one in asked) < TAKE_OVER_S
        assert ending.process.wait(DEADLINE_S) == 0
        assert several.holder() in (second, third)


@pytest.mark.parametrize(("folder", "store"), [(150, "jobs.db"), (30, f"{'j' * 120}.db")], ids=["folder", "name"])
def test_a_long_path_has_a_door_too(tmp_path: Path, folder: int, store: str) -> None:
    """By the folder's descriptor, or, as on systems that have no such paths, by a folder of the user's own."""
    long = tmp_path / ("f" * folder)
    long.mkdir()
    with sharers(long, 2, store) as several:
        assert several.others()[0].ask("schedule x")["said"] == "x"


FORKED_BEFORE = """
import asyncio, os, sys
from tocsin import ActorHost
host = ActorHost.open("sqlite:///forked.db", origin="http://127.0.0.1:9", insecure=True)
reads, writes = os.pipe()
child = os.fork()

async def main():
    if child:
        os.read(reads, 1)  # the child holds the store
    async with host:
        print(host.runtime.provider.owner, await host.scheduler().run_after("1h", "a:b"), host.ready, flush=True)
        if not child:
            os.write(writes, b"x")
            await asyncio.sleep(60)

asyncio.run(main())
os.kill(child, 9)
os.wait()
"""


def test_a_host_may_be_opened_before_a_fork_and_entered_after_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED_BEFORE], cwd=tmp_path, env=environment(), capture_output=True, text=True,
        timeout=DEADLINE_S,
    )  # fmt: skip
    said = [line.split() for line in done.stdout.splitlines()]
    assert [one[2] for one in said] == ["True", "True"], done.stderr
    assert said[0][0] != said[1][0], "two processes with one name would take each other's leases for their own"


FORKED_AFTER = """
import asyncio, os, sys, time
from tocsin import ActorHost, TocsinError

async def main():
    async with ActorHost.open("sqlite:///jobs.db", origin="http://127.0.0.1:9", insecure=True) as host:
        assert await host.scheduler().get("x") is None
        os.write(1, b"open\\n")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        child = os.fork()
        if not child:
            try:
                asyncio.run(host.scheduler().cancel("x"))
            except TocsinError as error:
                os.write(1, f"{type(error).__name__}\\n".encode())
            finally:
                time.sleep(20)
                os._exit(0)
        os.write(1, f"{child}\\n".encode())
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("holds", [True, False], ids=["of the holder", "of a follower"])
def test_a_fork_of_an_open_host_has_no_part_in_it(tmp_path: Path, holds: bool) -> None:
    with ExitStack() as stack:
        first = None if holds else Sharer("jobs.db", tmp_path)
        process = stack.enter_context(subprocess.Popen(
            [sys.executable, "-c", FORKED_AFTER], cwd=tmp_path, env=environment(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        ))  # fmt: skip
        stack.callback(process.kill)
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "open\n"
        other = Sharer("jobs.db", tmp_path)
        stack.callback(other.end)
        assert other.ask("ready")["said"]
        process.stdin.write("fork\n")
        process.stdin.flush()
        said = [process.stdout.readline().strip() for _ in range(2)]
        child = int(next(one for one in said if one.isdigit()))
        stack.callback(os.kill, child, signal.SIGKILL)
        assert {"HostClosedError", "StoreClosed"} & set(said)
        if first is not None:
            first.end()
            assert other.ask("schedule x")["said"] == "x", "the parent, or this one, has taken over"
        else:
            process.kill()
            asked = other.ask("schedule x")
            assert asked["said"] == "x" and asked["seconds"] < TAKE_OVER_S, "the child keeps neither lock nor link"
