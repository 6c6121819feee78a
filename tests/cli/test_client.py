"""What the commands ask of a server, what they print, and how they fail."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from .conftest import Canned, Run

DUE = 1_900_000_000_000
ACCEPTED = {"id": "job-1", "scheduledFor": DUE, "created": True}


def record(id: str = "job-1", **more: Any) -> dict[str, Any]:
    base = {"id": id, "functionPath": "invoices:send", "args": {"n": 1}, "scheduledFor": DUE, "nextAttemptAt": DUE}
    return {**base, "state": "pending", "attempt": 0, "attempts": 0, "enqueuedAt": DUE - 1, **more}


# ---- schedule ------------------------------------------------------------------------------------


def test_schedule_prints_the_id_on_stdout_and_words_on_stderr(run: Run, canned: Canned) -> None:
    canned.answer(ACCEPTED)
    result = run("schedule", "invoices:send")
    assert result.exit_code == 0
    assert result.stdout == "job-1\n"
    assert "2030-03-17T17:46:40.000Z" in result.stderr
    assert canned.requests[0].method == "POST"
    assert canned.requests[0].path == "/schedule"
    assert canned.requests[0].body == {"functionPath": "invoices:send", "delayMs": 0}


def test_schedule_sends_every_option(run: Run, canned: Canned) -> None:
    canned.answer(ACCEPTED)
    words = (
        "schedule wf --workflow --at 2030-03-17T18:46:40+01:00 --id a --on-conflict keep --pool p --max-concurrency 3 "
        "--priority -4 --max-retries 0 --backoff linear --base 2s --max-delay 1m --jitter 0.5 --timeout 90s "
        f"--expires-at {DUE + 1} --label x --label y --shard-key k"
    )
    assert run(*words.split()).exit_code == 0
    assert canned.requests[0].body == {
        "workflow": "wf",
        "scheduledFor": DUE,
        "id": "a",
        "onConflict": "keep",
        "pool": "p",
        "maxConcurrency": 3,
        "priority": -4,
        "retry": {"maxRetries": 0, "backoff": "linear", "baseMs": 2_000, "maxMs": 60_000, "jitter": 0.5},
        "timeoutMs": 90_000,
        "expiresAt": DUE + 1,
        "labels": ["x", "y"],
        "shardKey": "k",
    }


def test_args_come_from_the_option_a_file_or_stdin(run: Run, canned: Canned, tmp_path: Path) -> None:
    canned.answer(ACCEPTED)
    file = tmp_path / "args.json"
    file.write_text('{"n": 123456789012345678901234567890}')
    for given, stdin in (("[1, null]", None), (f"@{file}", None), ("-", "true")):
        assert run("schedule", "p", "--args", given, input=stdin).exit_code == 0
    sent = [request.body["args"] for request in canned.requests]
    assert sent == [[1, None], {"n": 123456789012345678901234567890}, True]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--in 5m --at 2030-01-01T00:00:00Z", "give --in or --at, not both"),
        ("--in 5x", '--in must look like "90s", "5m", "2h" or "1d", not \'5x\''),
        ("--at 2030-01-01T00:00:00", "--at needs a time zone"),
        ("--at 2027-01-01", "--at needs a time of day, too: like 2027-01-01T00:00:00Z, not '2027-01-01'"),
        ("--at 20270101", "like 2027-01-01T00:00:00Z"),
        ("--at 2027-01-01Z", "like 2027-01-01T00:00:00Z"),
        ("--at 2027-01-01+02:00", "like 2027-01-01T00:00:00+02:00"),
        ("--expires-at 2027-01-01-0500", "--expires-at needs a time of day, too: like 2027-01-01T00:00:00-0500"),
        ("--at 2027-13-01", "--at must be like 2027-01-01T09:00:00Z"),
        ("--at tomorrow", "--at must be like 2027-01-01T09:00:00Z"),
        ("--at 1900000000", "looks like seconds"),
        ("--args {", "--args is not JSON"),
        ("--args @absent.json", "--args: absent.json cannot be read"),
        ("--on-conflict merge", "'merge' is not one of"),
        ("--timeout soon", "--timeout must look like"),
    ],
)
def test_wrong_usage_exits_2_and_asks_nothing(run: Run, canned: Canned, words: str, message: str) -> None:
    result = run("schedule", "p", *words.split())
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert canned.requests == []


def test_kept_job_is_said_to_be_kept(run: Run, canned: Canned) -> None:
    canned.answer({**ACCEPTED, "created": False, "identical": False, "state": "waiting"})
    result = run("schedule", "p", "--id", "job-1", "--on-conflict", "keep")
    assert "kept the waiting job of that id" in result.stderr
    assert "it differs from what you asked for" in result.stderr


def test_options_come_from_the_environment_too(run: Run, canned: Canned) -> None:
    canned.answer(ACCEPTED)
    env = {
        "TOCSIN_SCHEDULE_IN": "2s",
        "TOCSIN_SCHEDULE_POOL": "p",
        "TOCSIN_INSTANCE": "tenant:a",
        "TOCSIN_TOKEN": "hush",
        "TOCSIN_JSON": "1",
    }
    result = run("schedule", "p", env=env)
    assert json.loads(result.stdout) == ACCEPTED
    assert canned.requests[0].path == "/i/tenant:a/schedule"
    assert canned.requests[0].headers["authorization"] == "Bearer hush"
    assert canned.requests[0].body == {"functionPath": "p", "delayMs": 2_000, "pool": "p"}


# ---- Lists ---------------------------------------------------------------------------------------


def test_list_fits_80_columns_and_shows_whole_ids(run: Run, canned: Canned) -> None:
    long = "x" * 64
    canned.answer({"records": [record(), record(long, functionPath="f" * 200, pool="p" * 99)], "truncated": False})
    result = run("ls")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["ID", "STATE", "NEXT", "TRIES", "POOL", "PATH"]
    assert lines[2] == long, "on a line of its own, to be copied whole"


def test_list_tells_of_more_and_all_fetches_it(run: Run, canned: Canned) -> None:
    first = {"records": [record("a")], "truncated": True, "cursor": "c1"}
    canned.answer(first)
    result = run("ls", "--limit", "1", "--pool", "p", "--state", "waiting", "--order", "id")
    assert "--cursor c1" in result.stderr
    asked = dict(httpx.URL(canned.requests[0].path).params)
    assert asked == {"limit": "1", "order": "id", "state": "waiting", "pool": "p"}

    canned.answer({"records": [record("b")], "truncated": False})
    result = run("ls", "--all", "--json")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["a", "b"]
    assert result.stderr == ""
    assert "cursor=c1" in canned.requests[-1].path


def test_a_short_page_that_is_not_the_last_is_followed_up_to_the_limit(run: Run, canned: Canned) -> None:
    canned.answer({"records": [], "truncated": True, "cursor": "c1"})
    canned.answer({"records": [record("b")], "truncated": True, "cursor": "c2"})
    result = run("ls", "--limit", "1", "--json")
    assert json.loads(result.stdout)["id"] == "b"
    assert "--cursor c2" in result.stderr


def test_empty_lists_say_so_on_stderr(run: Run, canned: Canned) -> None:
    canned.answer({"records": [], "truncated": False})
    assert run("ls").stderr == "no live jobs in default\n"
    assert run("dead", "ls", "--instance", "t").stderr == "no dead jobs in t\n"
    assert run("ls", "--json").output == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ls --label red", "no live jobs in default (with --label red)"),
        ("ls --state running --path a:b --order id", "no live jobs in default (with --state running --path a:b)"),
        ("dead ls --reason refused --since 1900000000000", "no dead jobs in default (with --reason refused --since {}"),
        ("ls --all --cursor c1", "no live jobs in default (with --cursor c1)"),
        ("audit --who bob", "no operator has changed anything in default (with --who bob)"),
        ("audit --instance t", "no operator has changed anything in t"),
        ("workers --cursor c1", "no workers in default (with --cursor c1)"),
    ],
)
def test_an_empty_list_names_its_filter(run: Run, canned: Canned, words: str, said: str) -> None:
    canned.answer({"records": [], "actions": [], "workers": [], "truncated": False})
    result = run(*words.split())
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", said.replace("{}", f"{DUE})") + "\n")


# ---- One job -------------------------------------------------------------------------------------


def test_get_shows_the_record(run: Run, canned: Canned) -> None:
    error = {"status": 500, "message": "HTTP 500", "at": DUE}
    canned.answer({"record": record(pool="stripe", labels=["a", "b"], lastError=error, timeoutMs=90_000)})
    shown = run("get", "job-1").stdout
    for words in ("invoices:send", "stripe", "a, b", "status 500, HTTP 500", "1m 30s", '{"n":1}'):
        assert words in shown
    assert json.loads(run("get", "job-1", "--json").stdout)["pool"] == "stripe"


def test_what_others_wrote_cannot_drive_the_terminal(run: Run, canned: Canned) -> None:
    canned.answer({"record": record(state="dead", lastResponse="a\x1b[2Jb\nc", functionPath="[red]x")})
    shown = run("dead", "show", "job-1").stdout
    assert "\x1b" not in shown
    assert "a\\x1b[2Jb" in shown
    assert "[red]x" in shown


@pytest.mark.parametrize(
    ("words", "answer", "message"),
    [
        ("get x", {}, "there is no job 'x' in default"),
        ("cancel x", {"cancelled": False, "wasRunning": False}, "there is no live job 'x'"),
        ("dead show x", {}, "there is no job 'x'"),
        ("dead show x", {"record": record(state="waiting")}, "is not dead but waiting"),
        ("dead retry x", {"retried": False}, "there is no dead job 'x'"),
        ("dead cancel x", {"removed": False}, "there is no dead job 'x'"),
    ],
)
def test_no_such_job_exits_1(run: Run, canned: Canned, words: str, answer: Any, message: str) -> None:
    canned.answer(answer)
    result = run(*words.split())
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "path", "answer", "message"),
    [
        ("cancel x", "/cancel", {"cancelled": True, "wasRunning": True}, "an attempt is under way"),
        ("dead retry x", "/dead/retry", {"retried": True, "id": "x", "scheduledFor": DUE}, "x is due now"),
        ("dead cancel x", "/dead/cancel", {"removed": True}, "removed x"),
    ],
)
def test_changes_are_confirmed_on_stderr(
    run: Run, canned: Canned, words: str, path: str, answer: Any, message: str
) -> None:
    canned.answer(answer)
    result = run(*words.split())
    assert (result.exit_code, result.stdout) == (0, "")
    assert message in result.stderr
    assert (canned.requests[0].path, canned.requests[0].body) == (path, {"id": "x"})
    assert json.loads(run(*words.split(), "--json").stdout) == answer


def test_status_shows_counts_and_pools(run: Run, canned: Canned) -> None:
    pool = {"name": "stripe", "inFlight": 2, "maxConcurrency": 2, "queued": 7, "paused": True}
    lanes = {"inFlight": 3, "limit": 64}
    answer = {"backlog": 12_345, "inFlight": 3, "due": 9, "oldestDueMs": 61_000, "dead": 1, "lanes": lanes}
    canned.answer({**answer, "health": "green", "pools": [pool]})
    shown = run("status").stdout
    for words in ("12,345", "9 (the oldest for 1m 1s)", "3 of 64 in use", "stripe", "paused"):
        assert words in shown
    assert json.loads(run("status", "--json").stdout)["backlog"] == 12_345
    assert "none of its jobs start" not in shown


def test_status_says_beside_the_colour_why_and_for_how_long(run: Run, canned: Canned) -> None:
    counts = {"backlog": 1, "inFlight": 0, "due": 0, "dead": 0, "pools": []}
    since = int(time.time() * 1000) - 62_000
    reasons = [{"code": "ORIGIN_UNREACHABLE", "message": "the origin is away", "since": since},
               {"code": "DEAD_LETTERS", "message": "7 dead letters", "since": since + 1e9}]  # fmt: skip
    canned.answer({**counts, "health": "red", "reasons": reasons})
    lines = [line.rstrip() for line in run("status").stdout.splitlines()]

    assert lines[1].startswith("health     red: the origin is away (for 1m 2")
    assert lines[2].strip().startswith("7 dead letters (for 0")


def test_status_says_that_there_is_nothing_in_an_instance(run: Run, canned: Canned) -> None:
    canned.answer({"backlog": 0, "due": 0, "inFlight": 0, "dead": 0, "health": "green", "known": False})
    result = run("status", "--instance", "nosuch")
    assert "nosuch: there is nothing in it (yet)" in result.stdout
    assert result.exit_code == 0


def test_status_says_that_an_instance_is_paused(run: Run, canned: Canned) -> None:
    canned.answer({"backlog": 1, "inFlight": 0, "due": 0, "dead": 0, "health": "green", "pools": [], "paused": True})
    assert "none of its jobs start" in run("status").stdout


# ---- Failures ------------------------------------------------------------------------------------


ON_CONFLICT = "--on-conflict (error, keep, replace) says what to do about that job"


def test_the_servers_words_are_shown_and_exit_1(run: Run, canned: Canned) -> None:
    canned.refuse(409, "DUPLICATE_SCHEDULE_ID", "id 'a' is taken by a pending job")
    result = run("schedule", "p", "--id", "a", "--json")
    assert result.exit_code == 1
    assert result.stderr == f"Error: id 'a' is taken by a pending job [DUPLICATE_SCHEDULE_ID]\n{ON_CONFLICT}\n"
    assert result.stdout == ""


def test_a_missing_token_is_hinted_at(run: Run, canned: Canned) -> None:
    canned.refuse(401, "UNAUTHENTICATED", "no token")
    assert "give a token with --token or TOCSIN_TOKEN" in run("status").stderr


def test_a_wrong_token_is_to_be_checked_not_to_be_given(run: Run, canned: Canned) -> None:
    canned.refuse(401, "UNAUTHENTICATED", "no such token")
    for result in (run("status", "--token", "hush"), run("status", env={"TOCSIN_TOKEN": "hush"})):
        assert result.exit_code == 1
        assert "check --token (TOCSIN_TOKEN)" in result.stderr
        assert "give a token" not in result.stderr
        assert "hush" not in result.stderr


@pytest.mark.parametrize(("status", "value"), [(404, "<html>"), (200, "<html>"), (200, [1]), (302, "")])
def test_something_else_that_answers_exits_3(run: Run, canned: Canned, status: int, value: Any) -> None:
    canned.answer(value, status)
    result = run("status")
    assert result.exit_code == 3
    assert "is not a tocsin server" in result.stderr
    assert ("it needs the path" in result.stderr) == (status == 404)


@pytest.mark.parametrize(
    "words", [["get", "\udcff"], ["cancel", "\udcff"], ["-i", "\udcff"], ["ls", "--pool", "\udcff"]]
)
def test_an_argument_that_is_not_utf8_is_wrong_usage_and_sends_nothing(
    run: Run, canned: Canned, words: list[str]
) -> None:
    result = run(*(words if words[0] != "-i" else ["get", "a", "--instance", words[1]]))
    assert (result.exit_code, canned.requests) == (2, [])
    assert "UTF-8" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        "cancel-all --all --yes --instance NAME",
        "status --instance NAME",
        "instances pause NAME",
        "instances resume NAME",
        "instances rm NAME",
        "instances rm NAME --yes",
        "schedules show NAME",
        "schedules put NAME p --every 5m",
        "schedules trigger NAME",
        "schedules rm NAME",
        "dead redrive NAME --stop",
    ],
)
@pytest.mark.parametrize("name", ["..", ".", "a/../b", "", "ü", "a?b"])
def test_a_name_that_would_address_something_else_is_wrong_usage_and_asks_nothing(
    run: Run, canned: Canned, words: str, name: str
) -> None:
    result = run(*(name if word == "NAME" else word for word in words.split()))
    assert (result.exit_code, canned.requests) == (2, []), result.output
    assert "must match [A-Za-z0-9_]" in result.stderr


def test_an_instance_of_the_environment_is_checked_too(run: Run, canned: Canned) -> None:
    result = run("cancel-all", "--all", "--yes", env={"TOCSIN_INSTANCE": ".."})
    assert (result.exit_code, canned.requests) == (2, [])
    assert "an instance name must match" in result.stderr


def test_no_server_exits_3_and_says_how_to_start_one(run: Run) -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = run("ls", "--url", url)
    assert result.exit_code == 3
    assert f"no server at {url}" in result.stderr
    assert "tocsin serve" in result.stderr


@pytest.mark.parametrize("url", ["127.0.0.1:8321", "ftp://x", "http://", "http://x:99999"])
def test_wrong_url_exits_2(run: Run, url: str) -> None:
    result = run("ls", "--url", url)
    assert result.exit_code == 2
    assert "TOCSIN_URL" in result.stderr


@pytest.mark.parametrize("token", ["hush\x07", "hush\nhush", "hüsh", "hush hush"])
def test_a_token_no_header_can_hold_is_refused_and_not_shown(run: Run, canned: Canned, token: str) -> None:
    result = run("ls", env={"TOCSIN_TOKEN": token})
    assert result.exit_code == 2
    assert "TOCSIN_TOKEN" in result.stderr
    assert "hush" not in result.stderr
    assert "hüsh" not in result.stderr
    assert canned.requests == []


def test_a_proxy_of_the_environment_is_not_asked_for_loopback(run: Run, canned: Canned) -> None:
    canned.answer({"records": [], "truncated": False})
    assert run("ls", env={"HTTP_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"}).exit_code == 0


@pytest.mark.parametrize("day", ["2027-01-01", "20270101", "2027-01-01Z", "2027-01-01+02:00", "2027-01-01-0530"])
def test_the_instant_that_is_proposed_for_a_day_is_taken(run: Run, canned: Canned, day: str) -> None:
    canned.answer(ACCEPTED)
    refused = run("schedule", "p", "--at", day)
    proposed = refused.stderr.split("like ")[1].split(",")[0]
    assert run("schedule", "p", "--at", proposed).exit_code == 0, proposed
    assert len(canned.requests) == 1
