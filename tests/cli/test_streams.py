"""What commands do with streams that are closed, full, left by their reader, or lack a character."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes.server_process import free_port
from tests.waiting import wait_until

from .conftest import Canned, Run
from .processes import COMMAND, DEADLINE_S, environment

SNOWMAN = "\N{SNOWMAN}"
SMILE = "\N{GRINNING FACE}"
WILD = "a\x1b[31mred\x9b1mbold\x07\u202eback\r"
"""Sequences that colour, hide or turn round what a terminal shows."""


def shell(script: str, *words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`script` with `$T` standing for tocsin and its words, which are quoted."""
    command = " ".join(shlex.quote(word) for word in (*COMMAND, *words))
    return subprocess.run(
        ["/bin/bash", "-c", script.replace("$T", command)],
        cwd=cwd, env=environment(**env), capture_output=True, timeout=DEADLINE_S,
        encoding=env.get("PYTHONIOENCODING", "utf-8").partition(":")[0],
    )  # fmt: skip


def job(number: int, path: str = "p") -> dict[str, Any]:
    due = 1_900_000_000_000
    return {"id": f"job-{number}", "functionPath": path, "args": {}, "scheduledFor": due, "state": "pending"}


def listed(*paths: str) -> dict[str, Any]:
    return {"records": [job(number, path) for number, path in enumerate(paths)], "truncated": False}


# ---- Closed from the start -----------------------------------------------------------------------


def closed(*words: str, cwd: Path, **env: str) -> subprocess.Popen[bytes]:
    """A process without standard streams."""
    command = " ".join(shlex.quote(word) for word in (*COMMAND, *words))
    return subprocess.Popen(["/bin/bash", "-c", f"exec {command} <&- >&- 2>&-"], cwd=cwd, env=environment(**env))


def standard(process: subprocess.Popen[bytes]) -> list[str]:
    """What the descriptors 0, 1 and 2 of a process are."""
    return [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)]


def test_a_server_and_a_worker_without_standard_streams_run_and_stop_with_0(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "app.py").write_text("def work(args): ...\nhandlers = {'work': work}\n")
    server = closed("serve", "--port", url.rpartition(":")[2], cwd=tmp_path)
    worker: subprocess.Popen[bytes] | None = None
    try:
        wait_until(lambda: httpx.get(f"{url}/readyz").is_success, ignoring=httpx.HTTPError)
        worker = closed("worker", "app:handlers", "--json", cwd=tmp_path, TOCSIN_URL=url)
        wait_until(lambda: httpx.get(f"{url}/workers").json()["workers"], ignoring=httpx.HTTPError)
        assert standard(server) == standard(worker) == ["/dev/null"] * 3
        for process in (worker, server):
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
    finally:
        for started in (server, worker):
            if started is not None:
                started.kill()
                started.wait()


@pytest.mark.parametrize("gone", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_commands_without_streams_end_well(tmp_path: Path, canned: Canned, gone: str) -> None:
    canned.answer(listed("p"))
    for words in (("ls",), ("ls", "--json"), ("keys", "new"), ("next", "* * * * *"), ("--version",), ("ls", "--help")):
        done = shell(f"$T {gone}", *words, cwd=tmp_path, TOCSIN_URL=canned.url)
        assert (done.returncode, done.stderr) == (0, ""), words


def test_who_cannot_be_asked_is_not_taken_to_agree(tmp_path: Path, canned: Canned) -> None:
    canned.answer({"matched": 1})
    done = shell("$T <&-", "cancel-all", "--all", cwd=tmp_path, TOCSIN_URL=canned.url)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert [request.body for request in canned.requests] == [{"all": True, "dryRun": True}]


# ---- Left, or full -------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("ls", "--all"), ("ls", "--all", "--json"), ("dead", "ls"), ("--help",)])
def test_a_reader_that_leaves_has_what_it_wanted(tmp_path: Path, canned: Canned, words: tuple[str, ...]) -> None:
    canned.answer(listed(*["p" * 90] * 1_000))  # more than a pipe holds
    done = shell("set -o pipefail; $T | head -1", *words, cwd=tmp_path, TOCSIN_URL=canned.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_reader_that_never_was_is_one_that_left(tmp_path: Path, canned: Canned) -> None:
    canned.answer({"id": "job-1", "scheduledFor": 1_900_000_000_000})
    done = shell(
        "set -o pipefail; $T | true; $T 2>&1 >/dev/null | true", "schedule", "p", cwd=tmp_path, TOCSIN_URL=canned.url
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ("ls",),
        ("ls", "--json"),
        ("schedule", "p"),
        ("keys", "new"),
        ("--help",),
        ("ls", "--help"),
        ("completion", "bash"),
    ],
)
def test_a_full_disk_behind_stdout_is_one_line_and_a_code_of_its_own(
    tmp_path: Path, canned: Canned, words: tuple[str, ...]
) -> None:
    canned.answer(listed("p") | {"id": "job-1", "scheduledFor": 1_900_000_000_000})
    done = shell("$T > /dev/full", *words, cwd=tmp_path, TOCSIN_URL=canned.url)
    assert done.returncode == 6
    assert done.stderr == "Error: what was found cannot be written to stdout: No space left on device\n"


@pytest.mark.parametrize("sink", ["2> /dev/full", "2> >(true)"])
def test_words_that_nobody_can_read_fail_no_command(tmp_path: Path, canned: Canned, sink: str) -> None:
    canned.answer({"id": "job-1", "scheduledFor": 1_900_000_000_000})
    done = shell(f"$T {sink}", "schedule", "p", cwd=tmp_path, TOCSIN_URL=canned.url)
    assert (done.returncode, done.stdout) == (0, "job-1\n")


# ---- Characters ----------------------------------------------------------------------------------

NARROW = [
    {"PYTHONIOENCODING": "cp1252"},
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.mark.parametrize("env", NARROW, ids=["cp1252", "ascii", "C"])
def test_what_an_encoding_lacks_is_escaped(tmp_path: Path, canned: Canned, env: dict[str, str]) -> None:
    canned.answer(listed(f"{SNOWMAN}{SMILE}:send"))
    table = shell("$T", "ls", cwd=tmp_path, TOCSIN_URL=canned.url, **env)
    assert (table.returncode, table.stderr) == (0, "")
    assert r"\u2603\U0001f600:send" in table.stdout

    one = shell("$T", "ls", "--json", cwd=tmp_path, TOCSIN_URL=canned.url, **env)
    assert one.returncode == 0
    assert json.loads(one.stdout)["functionPath"] == f"{SNOWMAN}{SMILE}:send"


def test_the_c_locale_as_it_is_takes_any_character(tmp_path: Path, canned: Canned) -> None:
    canned.answer(listed(f"{SNOWMAN}:send"))
    done = shell("$T", "ls", cwd=tmp_path, TOCSIN_URL=canned.url, LC_ALL="C")
    assert done.returncode == 0
    assert "job-0" in done.stdout


def harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


WILD_RECORD = {
    **job(1, WILD), "id": WILD, "state": WILD, "pool": WILD, "labels": [WILD], "args": {WILD: WILD}, "reason": WILD,
    "lastError": {"message": WILD, "at": 1}, "lastResponse": WILD, "then": [{"functionPath": WILD, "queue": WILD}],
    "shardKey": WILD, "queue": WILD,
}  # fmt: skip
POOL = {"name": WILD, "inFlight": 1, "maxConcurrency": 1, "queued": 0, "paused": False,
        "holders": [{"id": WILD, "kind": WILD, "until": 1}]}  # fmt: skip
ATTEMPT = {"attempt": 1, "outcome": WILD, "started": 1, "ended": 2, "error": WILD, "result": WILD}
WORKER = {"id": WILD, "name": WILD, "status": WILD, "queues": [WILD], "concurrency": 1, "heartbeatAt": 1}
WILD_ANSWERS: list[tuple[str, Any]] = [
    ("ls", {"records": [WILD_RECORD], "truncated": True, "cursor": WILD}),
    ("get x", {"record": WILD_RECORD}),
    ("dead ls", {"records": [WILD_RECORD], "truncated": False}),
    ("schedule p", {"id": WILD, "scheduledFor": 1, "created": False, "state": WILD}),
    ("cancel x", {"cancelled": True, "wasRunning": True}),
    ("why x", {"reasons": [{"code": WILD, "message": WILD, "holders": [WILD], "pool": WILD}]}),
    ("history x", {"attempts": [ATTEMPT]}),
    ("status", {"backlog": 0, "due": 0, "inFlight": 0, "dead": 0, "health": WILD, "lanes": {}, "pools": [POOL]}),
    ("pools", {"pools": [POOL]}),
    ("pools show x", POOL),
    ("queues", {"queues": [{"name": WILD, "waiting": 0, "due": 0, "inFlight": 0, "workersWaiting": 0}]}),
    ("result x", {"state": "done", "result": WILD}),
    ("result x", {"state": "dead", "error": WILD}),
    ("workers", {"workers": [WORKER]}),
    ("instances", {"instances": [{"name": WILD, "backlog": 0, "inFlight": 0, "dead": 0}]}),
    ("catalog", {"checked": True, "entries": [{"functionPath": WILD, "args": {"title": WILD, "type": WILD}}]}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "answer"), WILD_ANSWERS, ids=[f"{n} {words}" for n, (words, _) in enumerate(WILD_ANSWERS)]
)
def test_nothing_that_could_drive_a_terminal_reaches_it(run: Run, canned: Canned, words: str, answer: Any) -> None:
    canned.answer(answer)
    for more in ([], ["--json"]):
        result = run(*words.split(), *more)
        assert result.exit_code in (0, 1), result.output
        assert harmless(result.stdout) and harmless(result.stderr), ascii(result.output)
        if more:
            assert all(json.loads(line) for line in result.stdout.splitlines())


def test_what_a_server_says_to_refuse_is_harmless_too(run: Run, canned: Canned) -> None:
    canned.refuse(400, f"INVALID{WILD}", f"id must not be {WILD}")
    result = run("get", "x")
    assert result.exit_code == 1
    assert harmless(result.output) and "red" in result.output
