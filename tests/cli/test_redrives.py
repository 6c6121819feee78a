"""`tocsin dead`: bulk retries where another goes on, and filters of the list."""

from __future__ import annotations

from .conftest import Canned, Run


def test_a_retry_of_many_that_waits_or_goes_on_already_says_so(run: Run, canned: Canned) -> None:
    canned.answer({"redriveId": "r2", "matched": 2, "retried": 0, "running": True, "waitsFor": "r1"})
    assert run("dead", "retry-all", "--pool", "p", "--yes").stderr.endswith(
        "10 a second, once r1 has ended\nundo within ten minutes: tocsin undo r2\n"
    )
    canned.answers = [(200, {"redriveId": "r2", "matched": 2, "retried": 0, "running": True, "waitsFor": "r1"})]
    assert "waits for  r1" in run("dead", "redrive", "r2").stdout
    message = "bulk retry 'r1' goes on, and has every dead job that matches"
    canned.answers = [(409, {"error": {"code": "CONFLICT", "message": message, "redriveId": "r1"}})]
    result = run("dead", "retry-all", "--all", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr


def test_dead_jobs_are_listed_by_label_and_reason(run: Run, canned: Canned) -> None:
    canned.answer({"records": [], "truncated": False})
    assert run("dead", "ls", "--label", "eu", "--reason", "lost").exit_code == 0
    assert canned.requests[-1].path == "/dead?limit=100&label=eu&reason=lost"
