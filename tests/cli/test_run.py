"""`tocsin run --once` and `tocsin worker --burst` as cron runs them: processes, their output and their exit codes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tocsin import ActorHost, Job

from .conftest import Canned, Run
from .processes import COMMAND, environment, tocsin, tocsin_serve

SECRET = "whsec_" + "dGhlIHNlY3JldCBvZiB0aGlzIHRlc3QgOi0p"


def fill(folder: Path, *jobs: Job, instance: str = "a", then: Callable[[Any], Any] | None = None) -> str:
    """A store with these jobs, and its URL."""
    url = f"sqlite:///{folder}/jobs.db"

    async def main() -> None:
        async with ActorHost.open(url, origin="https://x.example", secrets=[SECRET], dispatch=False) as host:
            await host.scheduler(instance).submit_many(jobs)
            if then is not None:
                await then(host.scheduler(instance))

    asyncio.run(main())
    return url


def once(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return tocsin("run", "--once", *words, cwd=folder, TOCSIN_STORE=f"sqlite:///{folder}/jobs.db", **env)


def test_what_is_due_is_sent_by_a_process_that_then_ends(tmp_path: Path, canned: Canned) -> None:
    canned.answer({})
    fill(tmp_path, *[Job("work", n, after=0) for n in range(5)], Job("work", after=3_600))
    fill(tmp_path, Job("work", after=0), instance="b")

    ended = once(tmp_path, "--json", TOCSIN_ORIGIN_URL=canned.url, TOCSIN_SECRETS=SECRET)
    assert (ended.returncode, ended.stderr) == (0, "")
    told = json.loads(ended.stdout)
    assert (told["fired"], told["succeeded"], told["left"], told["trouble"]) == (6, 6, 0, False)
    assert told["nextDue"]
    assert {one.headers["webhook-signature"][:3] for one in canned.requests} == {"v1,"}
    assert len(canned.requests) == 6

    again = once(tmp_path, TOCSIN_ORIGIN_URL=canned.url, TOCSIN_SECRETS=SECRET)
    assert again.returncode == 0
    assert "fired      0" in again.stdout and "next due" in again.stdout


def test_until_waits_and_what_waits_for_a_person_or_a_worker_is_no_failure(tmp_path: Path, canned: Canned) -> None:
    canned.answer({})

    async def pause(jobs: Any) -> None:
        await jobs.set_pool("stopped", paused=True)

    fill(
        tmp_path,
        Job("work", after=1.5),
        Job("work", after=0, options={"pool": "stopped"}),
        Job("work", after=0, options={"queue": "mail"}),
        then=pause,
    )
    ended = once(tmp_path, "--until", "10s", TOCSIN_ORIGIN_URL=canned.url, TOCSIN_INSECURE="1")
    assert ended.returncode == 0, ended.stderr
    assert len(canned.requests) == 1
    assert "left       2" in ended.stdout
    assert re.search("1 of a: pool stopped (is paused|has been paused for [0-9]+s)\n", ended.stdout)
    assert "1 of a: queue mail: no worker waits for them on this host" in ended.stdout


def test_an_origin_that_is_down_is_exit_code_8_and_says_so(tmp_path: Path) -> None:
    fill(tmp_path, *[Job("work", after=0)] * 10)
    ended = once(tmp_path, "--json", TOCSIN_ORIGIN_URL="http://127.0.0.1:9", TOCSIN_INSECURE="1", TOCSIN_LANES="1")
    assert ended.returncode == 8
    assert "Error: due work is left: the origin http://127.0.0.1:9 cannot be reached" in ended.stderr
    told = json.loads(ended.stdout)
    assert told["trouble"] and told["fired"] + told["left"] == 10


def test_a_run_beside_a_server_or_another_run_does_nothing_and_is_exit_code_7(tmp_path: Path) -> None:
    fill(tmp_path, Job("work", after=3_600))
    with tocsin_serve(cwd=tmp_path, TOCSIN_STORE=f"sqlite:///{tmp_path}/jobs.db") as server:
        server.line_with("serving")
        ended = once(tmp_path)
    assert (ended.returncode, ended.stdout) == (7, "")
    assert "nothing was run" in ended.stderr and "is in use by process" in ended.stderr


def test_a_signal_ends_a_run_that_waits_and_the_next_one_goes_on(tmp_path: Path, canned: Canned) -> None:
    canned.answer({})
    fill(tmp_path, Job("work", after=0), Job("work", after=3_600))
    settings = {"TOCSIN_ORIGIN_URL": canned.url, "TOCSIN_INSECURE": "1"}
    words = ["run", "--once", "--until", "2h", "--store", f"sqlite:///{tmp_path}/jobs.db"]
    process = subprocess.Popen(
        [*COMMAND, *words], cwd=tmp_path, env=environment(**settings), stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: len(canned.requests) == 1)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "tocsin: stopping" in said and "stopped before all that is due was done" in said
    assert once(tmp_path, **settings).returncode == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "say --once"),
        ("--once --until soon", "--until must be like"),
        ("--once --until 5x", "--until must look like"),
        ("--once --max-seconds 0", "--max-seconds"),
        ("--once --lanes 0", "--lanes must be a whole number"),
        ("--once --origin-url http://x.example", "set TOCSIN_SECRETS"),
    ],
)
def test_what_cannot_be_run_is_wrong_usage(run: Run, tmp_path: Path, words: str, why: str) -> None:
    result = run("run", *words.split(), "--store", f"sqlite:///{tmp_path}/new.db")
    assert result.exit_code == 2, result.output
    assert why in " ".join(result.stderr.split())


def test_a_worker_with_burst_ends_when_its_queue_is_empty(tmp_path: Path) -> None:
    jobs = [Job("sleep", {"n": n, "s": 0}, after=0, options={"queue": "mail"}) for n in range(3)]
    fill(tmp_path, *jobs, instance="default")
    with tocsin_serve(cwd=tmp_path, TOCSIN_STORE=f"sqlite:///{tmp_path}/jobs.db") as server:
        url = server.url()
        words = ["worker", "tests.processes.working:handlers", "--burst", "--url", url]
        root = str(Path(__file__).parents[2])
        for count in ("3 jobs", "0 jobs"):
            ended = tocsin(*words, cwd=tmp_path, PYTHONPATH=root)
            assert ended.returncode == 0, ended.stderr
            assert f"tocsin: {count} worked off, nothing more is due" in ended.stderr
    assert sorted(one.name for one in tmp_path.glob("began-*")) == ["began-0", "began-1", "began-2"]
    ended = tocsin(*words, cwd=tmp_path, PYTHONPATH=root)
    assert ended.returncode == 3, ended.stderr
