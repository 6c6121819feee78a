"""`tocsin queues`, `pending`, `result`, and queues and chains where jobs are made and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from .conftest import Canned, Run

NOW = 1_900_000_000_000
QUEUE = {"name": "mail", "waiting": 12_345, "due": 10_000, "inFlight": 7, "workersWaiting": 64, "oldestDueMs": 90_000}
SCHEDULED = {"id": "a", "scheduledFor": NOW, "created": True}
THEN = {"functionPath": "mail:send", "queue": "mail", "delayMs": 60_000, "id": "01m8mkws68f02eaq2rgy8dahtq"}
CHAIN = {**THEN, "then": [{"workflow": "note"}]}


def test_queues_are_listed_within_80_columns_and_no_name_is_cut(run: Run, canned: Canned) -> None:
    long = {**QUEUE, "name": "q" * 128, "due": 0}
    del long["oldestDueMs"]
    canned.answer({"queues": [QUEUE, long]})
    shown = run("queues").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "mail                              12,345 10,000+   1m 30s         7       64" in shown
    assert "q" * 128 in shown.replace("\n", "")
    assert [json.loads(line)["name"] for line in run("queues", "--json").stdout.splitlines()] == ["mail", "q" * 128]
    canned.answers = [(200, {"queues": []})]
    assert run("queues", "--instance", "t").stderr == "no queues in t\n"


def test_pending_is_for_scripts_to_ask(run: Run, canned: Canned) -> None:
    canned.answer({"pending": True, "count": 2})
    yes = run("pending", "mail: x")
    assert (yes.exit_code, yes.stdout, yes.stderr) == (0, "", "2 jobs whose path starts with 'mail: x' are left\n")
    assert httpx.URL(canned.requests[-1].path).params["prefix"] == "mail: x"
    canned.answers = [(200, {"pending": False, "count": 0})]
    no = run("pending", "--json")
    assert (no.exit_code, json.loads(no.stdout)) == (1, {"pending": False, "count": 0})
    assert no.stderr == "no job is left in default\n"


def test_a_result_is_json_on_stdout(run: Run, canned: Canned) -> None:
    canned.answer({"id": "a", "state": "done", "result": {"n": 1.50}, "endedAt": NOW, "keptUntil": NOW})
    got = run("result", "a", "--wait", "30s")
    assert (got.exit_code, got.stdout) == (0, '{"n":1.5}\n')
    assert "kept until 2030-03-17" in got.stderr
    assert dict(httpx.URL(canned.requests[-1].path).params) == {"id": "a", "waitMs": "30000"}
    canned.answers = [(200, {"id": "a", "state": "done"})]
    assert run("result", "a").stdout == "null\n"
    canned.answers = [(200, {"id": "a", "state": "done", "noResult": "HTTP 200: no result: it has 70000 bytes"})]
    without = run("result", "a")
    assert (without.exit_code, without.stdout) == (0, "null\n")
    assert without.stderr == "HTTP 200: no result: it has 70000 bytes\n"


@pytest.mark.parametrize(
    ("words", "outcome", "said"),
    [
        ("result a", {"state": "running"}, "job 'a' has not ended: it is running; --wait 30s waits for it"),
        ("result a --wait 1s", {"state": "waiting"}, "job 'a' has not ended: it is waiting\n"),
        ("result a", {"state": "dead", "error": "exhausted: boom"}, "job 'a' is dead: exhausted: boom"),
        ("result a", {"state": "cancelled"}, "job 'a' is cancelled"),
        ("result a", {"state": "expired"}, "job 'a' is expired"),
    ],
)
def test_what_came_to_nothing_exits_1(run: Run, canned: Canned, words: str, outcome: Any, said: str) -> None:
    canned.answer({"id": "a", **outcome})
    got = run(*words.split())
    assert (got.exit_code, got.stdout) == (1, "")
    assert said in got.stderr
    assert json.loads(run(*words.split(), "--json").stdout)["state"] == outcome["state"]


def test_jobs_and_schedules_are_made_with_a_queue_and_what_follows(run: Run, canned: Canned, tmp_path: Path) -> None:
    canned.answer(SCHEDULED)
    (tmp_path / "then.json").write_text(json.dumps([CHAIN, {"workflow": "w"}]))
    one = run(
        "schedule", "p", "--queue", "mail", "--keep-result", "1h", "--then", ' {"functionPath": "q", "args": 1.50}'
    )
    assert one.exit_code == 0, one.output
    body = canned.requests[-1].body
    assert (body["queue"], body["keepResultMs"], body["then"]) == (
        "mail", 3_600_000, [{"functionPath": "q", "args": 1.5}],
    )  # fmt: skip
    run("schedule", "p", "--then", f"@{tmp_path / 'then.json'}")
    assert canned.requests[-1].body["then"] == [CHAIN, {"workflow": "w"}]
    canned.answers = [(200, {"name": "s", "revision": 1, "nextAt": NOW, "preview": []})]
    run("schedules", "put", "s", "p", "--every", "5m", "--queue", "mail", "--then", '[{"workflow": "w"}]')
    assert canned.requests[-1].body == {
        "everyMs": 300_000, "functionPath": "p", "queue": "mail", "then": [{"workflow": "w"}],
    }  # fmt: skip
    asked = len(canned.requests)
    wrong = run("schedule", "p", "--then", "{")
    assert (wrong.exit_code, len(canned.requests)) == (2, asked)
    assert "--then is not JSON" in wrong.stderr


def test_a_list_may_be_of_one_queue(run: Run, canned: Canned) -> None:
    canned.answer({"records": [], "truncated": False})
    run("ls", "--queue", "mail")
    assert httpx.URL(canned.requests[-1].path).params["queue"] == "mail"


def test_a_job_shows_its_queue_its_worker_and_its_chain(run: Run, canned: Canned) -> None:
    record = {
        "id": "a", "functionPath": "p", "args": {}, "scheduledFor": NOW, "state": "running", "enqueuedAt": NOW,
        "queue": "mail", "parent": "before", "keepResultMs": 3_600_000, "then": [CHAIN, {"functionPath": "q"}],
        "lease": {"until": NOW, "kind": "pulled", "worker": "w\x1b1"},
    }  # fmt: skip
    canned.answer({"record": record})
    shown = run("get", "a").stdout
    for line in (
        "queue         mail", "follows       before", "worker        w\\x1b1", "keeps result  1h",
        "then          mail:send (queue mail), 1m later 01m8mkws68f02eaq2rgy8dahtq",
        "                note", "              q",
    ):  # fmt: skip
        assert line in shown.splitlines(), shown
    schedule = {
        "name": "s", "revision": 1, "state": "active", "nextAt": NOW, "paused": False, "live": 0, "createdAt": NOW,
        "everyMs": 5_000, "functionPath": "p", "args": {}, "misfire": "one", "graceMs": 0, "overlap": "skip",
        "queue": "mail", "then": [{**CHAIN, "id": ""}],
    }  # fmt: skip
    canned.answers = [(200, schedule)]
    lines = run("schedules", "show", "s").stdout.splitlines()
    assert "queue     mail" in lines and "then      mail:send (queue mail), 1m later" in lines
