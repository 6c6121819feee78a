"""Tables and pages of the command line fit 80 columns, and cut no id and no number."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin.cli.output import now_ms

from .conftest import Canned, Run

NOW = 1_900_000_000_000
WIDE = "数据库" * 30
NASTY = "\x1b[2J\x07bell\u202eback"
ID = "i" * 64
RECORD: dict[str, Any] = {
    "id": ID,
    "functionPath": WIDE + NASTY,
    "args": {"text": WIDE},
    "scheduledFor": 999_999_999_999_999,
    "nextAttemptAt": 1,
    "enqueuedAt": 1,
    "state": "running",
    "attempt": 999_999,
    "attempts": 99_999_999,
    "pool": "p" * 128,
    "labels": ["l" * 128] * 20,
    "shardKey": WIDE,
    "lastError": {"at": 1, "message": WIDE + NASTY, "status": 500},
    "lease": {"until": NOW, "kind": "fired", "host": "h"},
    "retry": {"maxRetries": 100, "backoff": "exponential", "baseMs": 1, "maxMs": 10**15, "jitter": 0.123456789},
}
DEAD = {**RECORD, "state": "dead", "parkedAt": 1, "reason": "r" * 40, "lastResponse": (WIDE + NASTY) * 10}
ATTEMPT = {
    "attempt": 999_999,
    "outcome": "o" * 30,
    "started": 1,
    "ended": NOW,
    "latenessMs": NOW,
    "error": WIDE + NASTY,
}
BIG_POOL = {"name": WIDE[:60], "inFlight": 10**6, "maxConcurrency": 10_000, "queued": 10**9, "paused": True}
HOLDER = {"id": ID, "kind": "accepted", "until": NOW, "orphan": True}
REASON = {"code": "POOL_FULL", "message": WIDE + NASTY, "at": NOW, "pool": "p" * 128, "holders": [ID] * 20}
STATUS = {
    "backlog": 10**12, "inFlight": 1, "due": 10_000, "oldestDueMs": 10**12, "dead": 10**9, "health": "green",
    "lanes": {"inFlight": 64, "limit": 64}, "pools": [BIG_POOL],
    "reasons": [{"code": "ORIGIN_UNREACHABLE", "message": WIDE + NASTY, "since": NOW}] * 2,
}  # fmt: skip
ENTRY = {"functionPath": WIDE + NASTY, "args": {"type": "object", "properties": {WIDE + NASTY: {"type": WIDE + NASTY}}}}
ACTION = {
    "id": "0" * 27, "at": NOW - 359_999_000, "by": {"via": "dashboard", "token": "t" * 40, "user": WIDE + NASTY},
    "action": "dead_retry_all_of_them_and_more", "changed": 999_999, "about": ID,
    "given": {"functionPath": WIDE, "id": ID},
}  # fmt: skip
GROUP = {
    "path": "p" * 60,
    "reason": "unindexable",
    "count": 10**6,
    "newest": NOW - 86_399_000,
    "lastError": f"HTTP 500: {ID} {WIDE}",
}
MINUTE = {
    "at": NOW, "accepted": 9_999_999, "started": 99_999_999, "done": 10**8, "failed": 1_234_567, "died": 999_999,
    "backlog": 123_456_789, "lateP95Ms": 86_399_000, "tookP95Ms": 359_999_000,
}  # fmt: skip
SCREENS: dict[str, tuple[Any, str]] = {
    "ls": ({"records": [RECORD], "truncated": False}, ID),
    "get x": ({"record": RECORD}, ID),
    "dead ls": ({"records": [DEAD], "truncated": False}, ID),
    "dead show x": ({"record": DEAD}, ID),
    "why x": ({"reasons": [REASON] * 2}, ID),
    "history x": ({"attempts": [ATTEMPT]}, "999999"),
    "status": (STATUS, "1,000,000,000,000"),
    "pools": (STATUS, WIDE[:20]),
    "pools show x": ({**BIG_POOL, "holders": [HOLDER]}, ID),
    "instances": ({"instances": [{"name": "n" * 128, "backlog": 10**9, "inFlight": 10**9, "dead": 10**9}]}, "n" * 80),
    "catalog": ({"checked": True, "entries": [ENTRY, {"workflow": ID, "schemaLeftOut": True}], "leftOut": 10**9}, ID),
    "audit": ({"actions": [ACTION, {**ACTION, "id": "0" * 26}], "truncated": False}, ID),
    "dead groups": ({"groups": [GROUP, GROUP], "truncated": False}, ID),
    "activity": ({"now": NOW, "since": NOW, "minutes": [MINUTE] * 2}, "9,999,999"),
    "dead redrive x": ({"redriveId": ID, "matched": 10**9, "retried": 10**9, "running": True}, ID),
}


@pytest.mark.parametrize("words", SCREENS)
def test_no_line_is_wider_than_80_cells_and_no_id_is_cut(run: Run, canned: Canned, words: str) -> None:
    from rich.cells import cell_len

    answer, important = SCREENS[words]
    canned.answer(answer)
    result = run(*words.split())
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert any(important in line for line in lines)
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout


def test_numbers_and_instants_of_tables_are_whole(run: Run, canned: Canned) -> None:
    canned.answer({"now": NOW, "since": NOW, "minutes": [MINUTE]})
    cells = run("activity").stdout.splitlines()[1].split()
    assert cells[1:7] == ["9,999,999", "100.0M", "100.0M", "1.2M", "999,999", "123.5M"]

    one = {**ACTION, "id": "0" * 26, "at": now_ms() - 360_000_000}
    canned.answers[:] = [(200, {"actions": [one], "truncated": False})]
    first, *below = run("audit").stdout.splitlines()[1:]
    assert first.split() == ["0" * 26, "4d", "4h", "ago", "999,999", "dead_retry_all_of_them_and_more"]
    assert f"{'t' * 40}/" in below[0] and f"id={ID}" in "".join(below)

    canned.answers[:] = [(200, {"groups": [GROUP], "truncated": False})]
    assert "…" not in run("dead", "groups").stdout
