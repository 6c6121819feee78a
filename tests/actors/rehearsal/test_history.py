"""What calls are drawn from: attempts of the path, else of the pool, else of all, else a call time that was given."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tocsin.actors.rehearsal.answering import SAID, _answer
from tocsin.actors.rehearsal.history import FEW, Ended, History, Ran
from tocsin.actors.scheduler.model.rows import HistRow, JobRow
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow, occurrence_id
from tocsin.dispatch.callback import Verdict
from tocsin.dispatch.outcome import classify
from tocsin.dispatch.transport import BrokenExchange


def took(ms: int, outcome: str = "done", **more: Any) -> HistRow:
    return HistRow(outcome, 1, 1_000, 1_000 + ms, 1_000, **more)


def test_calls_are_drawn_from_their_path_then_their_pool_then_all_then_from_nothing() -> None:
    history, random = History(300), Random(1)
    assert history.draw("a", "p", random) == Ended(took_ms=300)
    for _ in range(FEW):
        history.note(took(10), ("a", "p"))
        history.note(took(20), ("b", "q"))
    history.note(took(99), ("few", "q"))

    def drawn(path: str, pool: str) -> set[int]:
        return {history.draw(path, pool, random).took_ms for _ in range(100)}

    assert drawn("a", "q") == {10}
    assert drawn("few", "q") == {20, 99}, "one attempt tells too little of its path"
    assert drawn("new", "p") == {10}
    assert drawn("new", "new") == {10, 20, 99}
    assert history.attempts == 2 * FEW + 1


@pytest.mark.parametrize("outcome", ["lost", "unsent", "stopped", "unreachable", "blocked", "cancelled", "expired"])
def test_what_receivers_did_not_decide_tells_nothing_of_them(outcome: str) -> None:
    history = History(300)
    history.note(took(5, outcome), ("a", "p"))
    assert history.attempts == 0


def test_older_rows_tell_their_path_by_the_jobs_and_schedules_that_are_there() -> None:
    ran = Ran()
    ran.note_job(JobRow("j1", "i", 0, 0, b"", function_path="mail:send", pool="mail"))
    ran.note_schedule("nightly", DefinitionRow("u", 0, 0, workflow="report", pool="db"))
    assert ran.of("j1", took(1)) == ("mail:send", "mail")
    assert ran.of(occurrence_id("nightly", 1_800_000_000_000), took(1)) == ("report", "db")
    assert ran.of("gone", took(1)) == ("", "")
    assert ran.of("j1", took(1, ran=("other", ""))) == ("other", ""), "the id may have been taken again"


@pytest.mark.parametrize(
    ("ended", "verdict", "status"),
    [
        (Ended("done", 1, 204), Verdict.DONE, 204),
        (Ended("done", 1), Verdict.DONE, 200),
        (Ended("failed", 1, 500), Verdict.FAILED, 500),
        (Ended("failed", 1, 503), Verdict.FAILED, 503),
        (Ended("dead", 1, 422), Verdict.DEAD, 422),
        (Ended("dead", 1, 410), Verdict.DEAD, 410),
        (Ended("declined", 1, 409), Verdict.DECLINED, 409),
        (Ended("busy", 1, 429, 7_000), Verdict.BUSY, 429),
    ],
)
def test_the_model_answers_so_that_attempts_end_as_those_of_the_history(
    ended: Ended, verdict: Verdict, status: int
) -> None:
    outcome = classify(_answer(ended), 0)
    assert (outcome.verdict, outcome.status) == (verdict, status)
    assert outcome.retry_after_ms == (7_000 if verdict is Verdict.BUSY else None)


def test_a_failure_without_a_status_was_a_broken_exchange_and_is_one_again() -> None:
    with pytest.raises(BrokenExchange, match=SAID):
        _answer(Ended("failed", 1))


def test_a_busy_answer_of_the_history_waits_as_long_as_it_said() -> None:
    history = History(300)
    history.note(took(5, "busy", status=429, message="HTTP 429: busy, retry after 30000 ms: slow down"), ("a", ""))
    assert history.draw("a", "", Random(1)) == Ended("busy", 5, 429, 30_000)
