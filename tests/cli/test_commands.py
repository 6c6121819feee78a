"""What the commands of operators ask, print, and how they fail: why, history, pools, instances, bulk changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tocsin.cli.output import now_ms

from .conftest import Canned, Run

NOW = 1_900_000_000_000
POOL = {"name": "gpu", "inFlight": 2, "maxConcurrency": 2, "queued": 5, "paused": False}


def test_why_says_every_reason_in_the_servers_words(run: Run, canned: Canned) -> None:
    due = {"code": "NOT_DUE", "message": "it is due in 4980000 ms", "at": NOW}
    full = {"code": "POOL_FULL", "message": "pool gpu is full", "at": NOW, "pool": "gpu", "holders": ["a", "b"]}
    canned.answer({"id": "x", "reasons": [due, full]})
    shown = run("why", "x").stdout
    assert "NOT_DUE: it is due in 1h 23m" in shown
    assert "until 2030-03-17T17:46:40.000Z (in " in shown
    assert "POOL_FULL: pool gpu is full\n  the first lease ends 2030-03-17" in shown
    assert "  held by\n    a\n    b\n" in shown
    assert [json.loads(line)["code"] for line in run("why", "x", "--json").stdout.splitlines()] == [
        "NOT_DUE",
        "POOL_FULL",
    ]


def test_why_shows_some_holders_and_where_the_others_are_told(run: Run, canned: Canned) -> None:
    holders = [f"h{n}" for n in range(14)]
    canned.answer({"reasons": [{"code": "POOL_FULL", "message": "full", "pool": "gpu", "holders": holders}]})
    shown = run("why", "x").stdout
    assert "h9" in shown
    assert "h10" not in shown
    assert "and 4 more: tocsin pools show gpu" in shown


def test_why_of_a_job_that_may_start_and_of_none(run: Run, canned: Canned) -> None:
    canned.answer({"id": "x", "reasons": []})
    assert "nothing holds it" in run("why", "x").stderr
    canned.answers = [(200, {"reasons": [{"code": "NOT_FOUND", "message": "there is no job 'x'"}]})]
    result = run("why", "x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "tocsin history x" in result.stderr


def test_history_tells_each_end_and_cuts_no_words(run: Run, canned: Canned) -> None:
    error = "could not reach the database because " + "it was busy " * 12
    first = {"attempt": 1, "outcome": "failed", "started": NOW, "ended": NOW + 1_500, "latenessMs": 20, "error": error}
    done = {"attempt": 2, "outcome": "done", "started": NOW, "ended": NOW, "latenessMs": 0, "result": {"n": 1}}
    coded = {**first, "error": "card declined", "code": "card_declined", "status": 402, "data": {"limit": 100}}
    canned.answer({"attempts": [first, done, coded, {**done, "result": None, "status": 204}]})
    shown = run("history", "x").stdout
    assert " ".join(error.split()) in " ".join(line[48:] for line in shown.splitlines()).replace("  ", " ")
    assert 'result {"n":1}' in shown
    assert "HTTP 204" in shown
    assert "card_declined: card declined" in " ".join(shown.split()) and 'data {"limit":100}' in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"state": "running", "attempt": 1}, "the first attempt of x is still running: none has ended yet"),
        ({"state": "pending", "attempt": 0}, "no attempt of x has started yet: it is pending"),
        ({"state": "dead", "attempt": 3}, "no attempt of x has ended within the last week: it is dead"),
        ({"state": "running", "attempt": 2}, "no attempt of x has ended within the last week: it is running"),
    ],
)
def test_a_job_without_history_is_told_from_one_that_is_not_there(
    run: Run, canned: Canned, record: dict[str, Any], words: str
) -> None:
    canned.answers = [(200, {"attempts": []}), (200, {"record": record})]
    result = run("history", "x")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{words}\n")
    canned.answers = [(200, {"attempts": []}), (200, {"record": record})]
    result = run("history", "x", "--json")
    assert (result.exit_code, result.output) == (0, "")
    canned.answers = [(200, {"attempts": []}), (200, {})]
    result = run("history", "x")
    assert (result.exit_code, "there is no job 'x' in default, and none has ended" in result.stderr) == (1, True)


def test_pools_alone_lists_them_with_whatever_options(run: Run, canned: Canned) -> None:
    canned.answer({"pools": [POOL, {**POOL, "name": "p" * 128, "paused": True}], "morePools": True})
    shown = run("pools").stdout
    assert shown == run("pools", "ls").stdout
    assert shown.replace("\n", "").count("p" * 128) == 1
    assert max(map(len, shown.splitlines())) <= 80
    found = run("pools", "--json", "--instance", "t")
    assert [json.loads(line)["name"] for line in found.stdout.splitlines()] == ["gpu", "p" * 128]
    assert canned.requests[-1].path == "/i/t/status"
    assert "only the 1,000 pools" in found.stderr


def test_a_pool_is_shown_with_its_holders_and_changed(run: Run, canned: Canned) -> None:
    holder = {"id": "h" * 64, "kind": "accepted", "until": NOW, "orphan": True}
    canned.answer({**POOL, "holders": [holder]})
    shown = run("pools", "show", "gpu").stdout
    assert "2 of 2" in shown
    assert "h" * 64 in shown
    assert "cancelled" in shown
    run("pools", "set", "gpu", "--max-concurrency", "0", "--resume")
    assert (canned.requests[-1].method, canned.requests[-1].path) == ("PUT", "/pool")
    assert canned.requests[-1].body == {"name": "gpu", "maxConcurrency": 0, "paused": False}
    result = run("pools", "set", "gpu")
    assert (result.exit_code, len(canned.requests)) == (2, 2)


def test_a_list_of_pools_tells_which_are_held_back_and_one_for_how_long(run: Run, canned: Canned) -> None:
    cools = {**POOL, "name": "mail", "coolingUntil": now_ms() + 3_630_000}
    canned.answer({"pools": [POOL, cools, {**cools, "name": "both", "paused": True}]})
    lines = [line.split() for line in run("pools").stdout.splitlines()]
    assert [line[4:] for line in lines[1:]] == [[], ["cools"], ["paused"]]
    canned.answers = [(200, cools)]
    assert "cooling    none of its jobs start for another 1h" in run("pools", "show", "mail").stdout


@pytest.mark.parametrize(("left", "why"), [(0, "none has come between --start and --end"), (2, "2 slots ran already")])
def test_a_backfill_of_nothing_says_whether_slots_were_left_out(run: Run, canned: Canned, left: int, why: str) -> None:
    canned.answer({"matched": 0, "leftOut": left, "slots": []})
    times = ("--start", "2027-01-01T00:00Z", "--end", "2027-01-02T00:00Z")
    result = run("schedules", "backfill", "nightly", *times, "--dry-run")
    assert result.exit_code == 1 and f"has no slot to run there: {why}" in result.stderr


@pytest.mark.parametrize(("there", "code"), [(True, 0), (False, 1)])
def test_removing_a_pool(run: Run, canned: Canned, there: bool, code: int) -> None:
    canned.answer({"deleted": there})
    assert run("pools", "rm", "a b").exit_code == code
    assert (canned.requests[0].method, canned.requests[0].path) == ("DELETE", "/pool?name=a+b")


def test_reschedule_says_where_to_or_why_not(run: Run, canned: Canned) -> None:
    canned.answer({"rescheduled": True, "scheduledFor": NOW})
    canned.answer({"rescheduled": False, "wasRunning": True})
    canned.answer({"rescheduled": False})
    assert "at 2030-03-17T17:46:40.000Z" in run("reschedule", "x", "--at", "2030-03-17T17:46:40Z").stderr
    assert canned.requests[0].body == {"id": "x", "scheduledFor": NOW}
    assert "is running" in run("reschedule", "x", "--in", "5m").stderr
    assert canned.requests[1].body == {"id": "x", "delayMs": 300_000}
    result = run("reschedule", "x", "--in", "0s", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, {"rescheduled": False})
    assert run("reschedule", "x", "--in", "5m", "--at", "2030-01-01T00:00:00Z").exit_code == 2


# ---- Many at once --------------------------------------------------------------------------------


def test_nothing_is_cancelled_that_was_not_agreed_to(run: Run, canned: Canned) -> None:
    canned.answer({"matched": 3, "cancelled": 0})
    assert run("cancel-all").exit_code == 2
    assert run("cancel-all", "--all", "--pool", "p").exit_code == 2
    assert canned.requests == []
    result = run("cancel-all", "--pool", "p")  # nobody can be asked
    assert result.exit_code == 2
    assert "3 jobs of default will be cancelled" in result.stderr
    assert run("cancel-all", "--label", "x", "--dry-run").stderr == "would cancel 3 jobs\n"
    assert run("cancel-all", "--label", "x", "--dry-run", "--yes").stderr == "would cancel 3 jobs\n"
    assert [request.body["dryRun"] for request in canned.requests] == [True] * 3
    canned.answers = [(200, {"matched": 3, "cancelled": 3})]
    assert run("cancel-all", "--path", "a:b", "--yes").stderr == "cancelled 3 of 3 jobs\n"
    assert canned.requests[-1].body == {"functionPath": "a:b", "dryRun": False}
    canned.answers = [(200, {"matched": 0, "cancelled": 0})]
    assert run("cancel-all", "--all", "--yes").exit_code == 1
    assert canned.requests[-1].body == {"all": True, "dryRun": False}


def test_dead_jobs_are_retried_in_bulk_once_that_was_agreed_to(run: Run, canned: Canned) -> None:
    canned.answer({"matched": 2})
    assert run("dead", "retry-all").exit_code == 2
    assert canned.requests == []
    assert run("dead", "retry-all", "--all").exit_code == 2
    assert run("dead", "retry-all", "--all", "--dry-run").stderr == "would retry 2 dead jobs\n"
    assert [request.body["dryRun"] for request in canned.requests] == [True] * 2
    canned.answers = [(200, {"redriveId": "r1", "matched": 2})]
    words = ("--reason", "exhausted", "--path", "a:b", "--since", "2030-03-17T17:46:40Z", "--rate-per-second", "3")
    result = run("dead", "retry-all", *words, "--yes")
    assert result.stdout == "r1\n"
    assert "3 a second" in result.stderr
    wanted = {"reason": "exhausted", "functionPath": "a:b", "since": NOW, "ratePerSecond": 3}
    assert canned.requests[-1].body == wanted


@pytest.mark.parametrize("how", ["--yes", "--dry-run", ""])
def test_a_retry_of_many_that_matches_nothing_exits_1(run: Run, canned: Canned, how: str) -> None:
    answer = {"redriveId": "r1", "matched": 0}
    canned.answer(answer)
    words = ["dead", "retry-all", "--reason", "zz", *how.split()]
    result = run(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no dead job of default matches" in result.stderr
    result = run(*words, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, answer)


def test_where_nobody_can_be_asked_only_options_that_are_there_are_named(run: Run, canned: Canned) -> None:
    canned.answer({"matched": 2})
    for words in ("cancel-all --all", "dead retry-all --all"):
        stderr = run(*words.split()).stderr
        assert "say --yes" in stderr and "--dry-run" in stderr
    removing = run("instances", "rm", "x")
    assert removing.exit_code == 2
    assert "say --yes" in removing.stderr
    assert "--dry-run" not in removing.stderr


def test_a_redrive_is_shown_and_stopped(run: Run, canned: Canned) -> None:
    going = {"redriveId": "r1", "matched": 9, "retried": 4, "running": True}
    canned.answer(going)
    assert "running" in run("dead", "redrive", "r1").stdout
    canned.answers = [(200, {"stopped": True}), (200, {**going, "running": False, "stopped": True})]
    assert "stopped" in run("dead", "redrive", "r1", "--stop").stdout
    assert [request.method for request in canned.requests] == ["GET", "DELETE", "GET"]
    canned.answers = [(200, {"stopped": False})]
    assert run("dead", "redrive", "r2", "--stop").exit_code == 1
    assert canned.requests[-1].path == "/dead/redrives/r2"


def test_ctrl_c_exits_130(run: Run, canned: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(httpx.Client, "request", interrupted)
    result = run("ls", "--json")
    assert (result.exit_code, result.stdout) == (130, "")


# ---- Accepted work -------------------------------------------------------------------------------


def test_accepted_work_is_completed_failed_and_extended(run: Run, canned: Canned) -> None:
    canned.answer({"settled": True, "leaseUntil": NOW})
    run("complete", "x", "1.2.ab", "--result", '{"n": 1}')
    run("complete", "x", "1.2.ab", "--failed", "no disk", "--in", "5m")
    run("complete", "x", "1.2.ab", "--failed", "no disk", "--never")
    run("complete", "x", "1.2.ab", "--failed", "no disk", "--no-charge", "--in", "0s")
    assert [request.body for request in canned.requests] == [
        {"id": "x", "lease": "1.2.ab", "ok": True, "result": {"n": 1}},
        {"id": "x", "lease": "1.2.ab", "ok": False, "error": "no disk", "delayMs": 300_000},
        {"id": "x", "lease": "1.2.ab", "ok": False, "error": "no disk", "retryable": False},
        {"id": "x", "lease": "1.2.ab", "ok": False, "error": "no disk", "charge": False, "delayMs": 0},
    ]
    assert "is held until 2030" in run("extend", "x", "1.2.ab", "30m").stderr
    assert canned.requests[-1].body == {"id": "x", "lease": "1.2.ab", "leaseMs": 1_800_000}


@pytest.mark.parametrize(
    "words", ["--never", "--no-charge", "--in 5m", "--failed a --result 1", "--result {", "--failed a --in soon"]
)
def test_what_contradicts_itself_is_not_sent(run: Run, canned: Canned, words: str) -> None:
    assert run("complete", "x", "1.2.ab", *words.split()).exit_code == 2
    assert canned.requests == []


# ---- Instances -----------------------------------------------------------------------------------


def test_instances_are_listed_page_by_page_at_the_root(run: Run, canned: Canned) -> None:
    one = {"name": "tenant:a", "backlog": 12_345, "inFlight": 0, "dead": 2}
    canned.answer({"instances": [one], "truncated": True, "cursor": "tenant:a"})
    canned.answer({"instances": [{**one, "name": "i" * 128}], "truncated": False})
    shown = run("instances", "--all", "--instance", "t").stdout
    assert "12,345" in shown
    assert "i" * 128 in shown.replace("\n", "")
    assert max(map(len, shown.splitlines())) <= 80
    assert [httpx.URL(request.path).path for request in canned.requests] == ["/instances"] * 2
    canned.answers = [(200, {"instances": [], "truncated": False})]
    assert run("instances").stderr == "no instances\n"


def test_an_instance_is_paused_resumed_and_removed_by_name(run: Run, canned: Canned) -> None:
    canned.answer({"name": "t:a", "paused": True, "jobs": 3, "rows": 9})
    assert "is paused" in run("instances", "pause", "t:a", "--instance", "other").stderr
    assert "starts jobs again" in run("instances", "resume", "t:a").stderr
    assert run("instances", "rm", "t:a").exit_code == 2
    assert "3 jobs" in run("instances", "rm", "default", "--yes").stderr
    assert [(one.method, one.path, one.body) for one in canned.requests] == [
        ("PUT", "/i/t:a/instance", {"paused": True}),
        ("PUT", "/i/t:a/instance", {"paused": False}),
        ("DELETE", "/i/default?confirm=default", None),
    ]


# ---- Completion ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_every_shell_asks_this_command(run: Run, shell: str) -> None:
    script = run("completion", shell)
    assert script.exit_code == 0
    assert f"_TOCSIN_COMPLETE={shell}_complete" in script.stdout
    assert run("completion", "--help").output.count(f"tocsin completion {shell}") == 1


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("tocsin de", ["dead", "demo"]),
        ("tocsin dead re", ["redrive", "retry", "retry-all"]),
        ("tocsin ls --state ", ["pending", "running", "waiting"]),
        ("tocsin completion f", ["fish"]),
        ("tocsin pools set --re", ["--resume"]),
        ("tocsin dead retry-all --ra", ["--rate-per-second"]),
    ],
)
def test_bash_completes_commands_options_and_values(tmp_path: Path, typed: str, offered: list[str]) -> None:
    import shlex
    import subprocess
    import sys

    from .processes import environment

    command = tmp_path / "tocsin"
    command.write_text(
        f"""#!/bin/sh
exec {shlex.quote(sys.executable)} -c 'from tocsin.cli import main; main(prog_name="tocsin")' "$@"
"""
    )
    command.chmod(0o755)
    words = typed.split(" ")
    script = f"""
        eval "$(tocsin completion bash)"
        COMP_WORDS=({" ".join(shlex.quote(word) for word in words)})
        COMP_CWORD={len(words) - 1}
        _tocsin_completion tocsin
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=environment(PATH=f"{tmp_path}:/usr/bin:/bin"),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert sorted(done.stdout.split()) == offered, done.stderr
