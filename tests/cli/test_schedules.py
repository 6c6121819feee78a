"""`tocsin schedules` and `tocsin next`: what they ask, what they print within 80 columns, and how they fail."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from .conftest import Canned, Run

NOW = 1_900_000_000_000
PUT = {"name": "s", "revision": 1, "nextAt": NOW, "preview": [NOW, NOW + 86_400_000]}
SCHEDULE: dict[str, Any] = {
    "name": "s", "revision": 3, "state": "active", "nextAt": NOW, "paused": False, "live": 1, "createdAt": NOW,
    "cron": "30 9 * * mon-fri", "timezone": "Europe/Berlin", "functionPath": "p", "args": {"n": 1}, "misfire": "all",
    "graceMs": 60_000, "catchUpLimit": None, "overlap": "queue",
}  # fmt: skip
FIRED = {"slot": NOW, "state": "fired", "due": NOW, "decidedAt": NOW, "latenessMs": 12, "jobId": "cron-1"}

# ---- next ----------------------------------------------------------------------------------------


def test_next_marks_lines_beside_a_change_of_the_clock_and_asks_no_server(run: Run, canned: Canned) -> None:
    words = ("next", "30 1 * * *", "--tz", "America/New_York", "--from", "2026-10-30T12:00:00Z")
    result = run(*words)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[1].startswith("Sat 2026-10-31 01:30:00 -04:00")
    assert lines[2].startswith("Sun 2026-11-01 01:30:00 -04:00")
    assert "DST: 01:30 comes twice" in lines[2]
    assert lines[4].startswith("Mon 2026-11-02 01:30:00 -05:00")
    assert max(map(len, lines)) <= 80
    found = [json.loads(line) for line in run(*words, "--json", "--count", "2").stdout.splitlines()]
    assert found[0] == {"at": 1_793_424_600_000, "local": "2026-10-31T01:30:00-04:00", "note": None}
    assert found[1]["note"].startswith("DST")
    assert canned.requests == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0 22-2 * * *"], "write its two pieces: 22-23,0-2"),
        (["* * * * *", "--tz", "europe/berlin"], "it is written 'Europe/Berlin'"),
        (["* * * * *", "--from", "tomorrow"], "--from must be like"),
        (["* * * * *", "--count", "101"], "101 is not in the range"),
        (["0 0 30 2 *"], "never"),
    ],
)
def test_next_of_what_cannot_be_is_wrong_usage(run: Run, words: list[str], message: str) -> None:
    result = run("next", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())


def test_next_says_when_nothing_comes_later(run: Run) -> None:
    result = run("next", "0 0 1 1 *", "--from", "250240000000000", "--json")
    assert result.exit_code == 0
    assert "there is no" in result.stderr
    assert result.stdout.count("\n") < 5


# ---- put -----------------------------------------------------------------------------------------


def test_put_sends_every_option_and_shows_what_comes(run: Run, canned: Canned) -> None:
    canned.answer(PUT)
    words = (
        "schedules put a:b.c wf --workflow --tz Asia/Kolkata --misfire all --grace 5s --catch-up-limit none "
        "--overlap queue --jitter 1m --expires-after 2h --pool p --max-concurrency 3 --priority -4 --max-retries 0 "
        "--backoff linear --base 2s --max-delay 1m --retry-jitter 0.5 --timeout 90s --label x --label y --shard-key k "
        "--paused --revision 0"
    )
    result = run(*words.split(), "--cron", "0 9 * * *", "--args", '{"n": 1}')
    assert result.exit_code == 0
    assert "2030-03-17 23:16:40 +05:30" in result.stdout
    assert "s is at revision 1" in result.stderr
    [request] = canned.requests
    assert (request.method, request.path) == ("PUT", "/schedules/a:b.c")
    assert request.body == {
        "cron": "0 9 * * *", "timezone": "Asia/Kolkata", "workflow": "wf", "misfire": "all", "graceMs": 5_000,
        "catchUpLimit": None, "overlap": "queue", "jitterMs": 60_000, "expiresAfterMs": 7_200_000, "pool": "p",
        "maxConcurrency": 3, "priority": -4, "timeoutMs": 90_000, "labels": ["x", "y"], "shardKey": "k",
        "retry": {"maxRetries": 0, "backoff": "linear", "baseMs": 2_000, "maxMs": 60_000, "jitter": 0.5},
        "paused": True, "revision": 0, "args": {"n": 1},
    }  # fmt: skip


def test_put_shows_an_instant_that_no_calendar_has(run: Run, canned: Canned) -> None:
    last = 999_999_999_999_999
    canned.answer({**PUT, "nextAt": last, "preview": [last]})
    result = run("schedules", "put", "s", "p", "--at", str(last))
    assert (result.exit_code, str(last) in result.stdout) == (0, True)


def test_put_leaves_out_what_was_not_said(run: Run, canned: Canned) -> None:
    canned.answer({**PUT, "nextAt": None})
    for words, rule in (("--every 90s", {"everyMs": 90_000}), (f"--at {NOW}", {"at": NOW})):
        result = run("schedules", "put", "s", "p", *words.split())
        assert canned.requests[-1].body == {"functionPath": "p", **rule}
        assert "at revision 1, and paused" in result.stderr
    assert json.loads(run("schedules", "put", "s", "p", "--every", "90s", "--json").stdout) == {**PUT, "nextAt": None}


def test_put_says_when_nothing_comes_any_more(run: Run, canned: Canned) -> None:
    canned.answer({**PUT, "nextAt": None, "preview": []})
    result = run("schedules", "put", "s", "p", "--at", "2020-01-01T00:00:00Z")
    assert (result.stdout, result.stderr) == ("", "s is at revision 1: it will not run again\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "give one of --cron, --every and --at"),
        ("--every 5m --at 2030-01-01T00:00:00Z", "give one of"),
        ("--every 5m --tz UTC", "--tz goes with --cron"),
        ("--every soon", "--every must look like"),
        ("--at tomorrow", "--at must be like"),
        ("--every 5m --catch-up-limit some", "--catch-up-limit must be a whole number, or none"),
        ("--every 5m --args {", "--args is not JSON"),
        ("--every 5m --misfire maybe", "'maybe' is not one of"),
    ],
)
def test_wrong_usage_exits_2_and_asks_nothing(run: Run, canned: Canned, words: str, message: str) -> None:
    result = run("schedules", "put", "s", "p", *words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())
    assert canned.requests == []


# ---- Looking -------------------------------------------------------------------------------------


def test_alone_it_lists_within_80_columns_and_cuts_no_name(run: Run, canned: Canned) -> None:
    rules = [{"cron": None, "everyMs": 5_400_000}, {"cron": None, "everyMs": 61_001}, {"cron": None, "at": NOW}]
    long = {
        **SCHEDULE,
        "name": "n" * 128,
        "cron": "1,2,3,4,5 " * 20,
        "orphaned": True,
        "state": "paused",
        "nextAt": None,
    }
    found = [SCHEDULE, long, *({**SCHEDULE, **rule} for rule in rules)]
    canned.answer({"schedules": found, "truncated": True, "cursor": "c1"})
    result = run("schedules", "--limit", "5")
    shown = result.stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "n" * 128 in shown.replace("\n", "")
    for words in ("30 9 * * mon-fri", "(Europe/Berlin)", "every 1h 30m", "every 61,001ms", "once, at", "orphaned"):
        assert words in shown
    assert "--cursor c1" in result.stderr
    canned.answers = [(200, {"schedules": [], "truncated": False})]
    assert run("schedules", "ls", "--instance", "t").stderr == "no schedules in t\n"


def test_show_tells_all_of_one(run: Run, canned: Canned) -> None:
    more = {"orphaned": True, "owner": "app", "heldBack": NOW, "error": "timezone 'X' is gone", "jitterMs": 5_000}
    canned.answer({**SCHEDULE, **more, "initiator": {"token": "ops"}, "expiresAfterMs": 3_600_000})
    shown = " ".join(run("schedules", "show", "s").stdout.split())
    for words in (
        "30 9 * * mon-fri (Europe/Berlin)", "all, of slots more than 1m late, without limit", "live 1 occurrence",
        "app, which does not name it any more", "the slot of 2030-03-17T17:46:40Z", "timezone 'X' is gone",
        "revision 3", "jitter 5s", "defined by ops", "1h after it was due", '{"n":1}',
    ):  # fmt: skip
        assert words in shown
    assert json.loads(run("schedules", "show", "s", "--json").stdout)["revision"] == 3


def test_occurrences_say_what_became_of_each_slot(run: Run, canned: Canned) -> None:
    run_of = {**FIRED, "state": "skipped", "reason": "misfire", "until": NOW + 60_000, "count": 168, "jobId": None}
    many = {**run_of, "state": "coalesced", "reason": None, "count": None}
    newest = {**FIRED, "firstSlot": NOW, "coalesced": 167, "triggered": True, "live": True, "slot": NOW + 1}
    long = {**FIRED, "jobId": "run-" + "x" * 24 + "-" + "y" * 16}
    canned.answer({"occurrences": [newest, run_of, many, long], "truncated": False})
    result = run("schedules", "occurrences", "s")
    shown = " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 80
    for words in (
        "2030-03-17T17:46:40.001Z fired 12ms cron-1, for 167 more since 2030-03-17T17:46:40Z, triggered, live",
        "skipped 12ms misfire, 168 slots until 2030-03-17T17:47:40Z", "coalesced 12ms many slots until",
    ):  # fmt: skip
        assert words in shown
    assert canned.requests[-1].path.startswith("/schedules/s/occurrences?")
    canned.answers = [(200, {"occurrences": [], "truncated": False})]
    assert run("schedules", "occurrences", "s").stderr == "no slot of s has come yet\n"


def test_a_job_says_of_which_schedule_it_is(run: Run, canned: Canned) -> None:
    record = {"id": "j", "functionPath": "p", "args": {}, "scheduledFor": NOW, "state": "pending", "enqueuedAt": NOW}
    for schedule, words in (
        ({"name": "s", "slot": NOW}, "s, slot 2030-03-17T17:46:40.000Z"),
        ({"name": "s", "slot": NOW, "triggered": True}, "s, triggered 2030"),
        ({"name": "s", "slot": NOW, "firstSlot": NOW, "coalesced": 5}, "and 5 more since 2030"),
    ):
        canned.answers = [(200, {"record": {**record, "schedule": schedule}})]
        assert words in " ".join(run("get", "j").stdout.split())


# ---- Changing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "method", "path", "body", "answer", "out", "said"),
    [
        ("pause s --revision 2", "POST", "/schedules/s/pause", {"revision": 2},
         {**SCHEDULE, "state": "paused", "nextAt": None}, "", "s is paused, at revision 3\n"),
        ("resume s", "POST", "/schedules/s/resume", {}, SCHEDULE, "", "s is active, at revision 3, next in"),
        ("trigger s --key k", "POST", "/schedules/s/trigger", {"requestKey": "k"},
         {"name": "s", "slot": NOW, "id": "run-1", "created": True}, "run-1\n", "due now"),
        ("trigger s", "POST", "/schedules/s/trigger", {},
         {"name": "s", "slot": NOW, "id": "run-1", "created": False}, "run-1\n", "nothing was done now"),
        ("rm s", "DELETE", "/schedules/s", None, {"deleted": True}, "", "removed s\n"),
        ("rm s --cancel-pending --revision 4", "DELETE", "/schedules/s?cancelPending=true&revision=4", None,
         {"deleted": True}, "", "removed s\n"),
    ],
)  # fmt: skip
def test_changes_ask_and_tell(
    run: Run, canned: Canned, words: str, method: str, path: str, body: Any, answer: Any, out: str, said: str
) -> None:
    canned.answer(answer)
    result = run("schedules", *words.split())
    assert (result.exit_code, result.stdout) == (0, out)
    assert said in result.stderr
    request = canned.requests[0]
    assert (request.method, httpx.URL(request.path), request.body) == (method, httpx.URL(path), body)
    assert json.loads(run("schedules", *words.split(), "--json").stdout) == answer


def test_removing_what_is_not_there_exits_1(run: Run, canned: Canned) -> None:
    canned.answer({"deleted": False})
    result = run("schedules", "rm", "s")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no schedule 's' in default" in result.stderr


def test_a_taken_id_names_the_flag_that_decides(run: Run, canned: Canned) -> None:
    canned.refuse(409, "DUPLICATE_SCHEDULE_ID", "id 'a' is taken by a pending job")
    assert "--on-conflict (error, keep, replace)" in run("schedule", "p", "--id", "a").stderr


def test_a_schedule_of_an_instant_that_has_passed_says_so(run: Run, canned: Canned) -> None:
    canned.answer({"name": "s", "revision": 1, "nextAt": 1_600_000_000_000, "preview": [1_600_000_000_000]})
    shown = run("schedules", "put", "s", "p", "--at", "1600000000000").stdout
    assert re.search(r"\d+d( \d+h)? ago +passed: --misfire decides", shown)
