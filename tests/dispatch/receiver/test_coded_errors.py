"""A receiver's error with a code, a status and data, in its answer and at the scheduler."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tests.dispatch.receiver.signed_callbacks import ReceiverFixture
from tocsin import HandlerError, Retry, TerminalError
from tocsin.dispatch.receiver import answers
from tocsin.dispatch.transport import Answer
from tocsin.errors import JobFailedError

DATA = {"retry_in": timedelta(days=1)}


@pytest.mark.anyio
@pytest.mark.parametrize("raises", [True, False])
async def test_what_a_handler_says_is_in_the_answer(raises: bool) -> None:
    """Returned where it should have been raised, it means the same."""
    error = TerminalError("card declined", code="card_declined", status=402, data=DATA)

    async def charge(args: object) -> HandlerError:
        if raises:
            raise error
        return error

    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": charge})
    answer = await fixture.send()

    assert (answer.status, answer.headers["tocsin-retry"]) == (402, "never")
    assert json.loads(answer.body) == {
        "error": {
            "code": "card_declined",
            "message": "card declined",
            "data": {"retry_in": {"$tocsin": "timedelta", "v": "P1D"}},
        }
    }


def test_an_error_that_is_retried_never_answers_that_the_job_is_dead() -> None:
    answer = answers.said(HandlerError("gone for now", code="gone", status=410))

    assert (answer.status, "tocsin-retry" in answer.headers) == (500, False)


@on_simulated_host()
async def test_whoever_waits_for_a_callback_is_told_what_its_handler_said(sim: SimulatedHost) -> None:
    for id, error in {
        "never": TerminalError("card declined", code="card_declined", status=402, data=DATA),
        "tried": HandlerError("out of stock", code="out_of_stock", data=DATA),
    }.items():
        sim.reply = lambda one, error=error: answers.said(error)  # type: ignore[misc]
        await sim.jobs.run_after(1, "work:run", id=id, keep_result="1h", retry=Retry(max_retries=1, base_ms=1000))
        with pytest.raises(JobFailedError) as told:
            await sim.jobs.result(id)
        record = await sim.jobs.get(id)
        history = await sim.jobs.history(id)

        assert (told.value.code, told.value.status, told.value.data) == (error.code, error.status, DATA)
        assert record is not None and record.last_error is not None
        assert (record.last_error.code, record.last_error.data) == (error.code, DATA)
        assert {one.code for one in history} == {error.code}


ANSWERS: Final[Sequence[tuple[bytes, str, object]]] = [
    (b'{"error": {"code": "no_stock", "message": "none", "data": [1]}}', "no_stock", [1]),
    (b'{"error": {"code": "HANDLER_FAILED", "message": "none"}}', "JOB_FAILED", None),
    (b'{"error": {"code": "HANDLER_FAILED", "data": [2]}}', "JOB_FAILED", [2]),
    (b'{"error": {"code": 7, "data": null}}', "JOB_FAILED", None),
    (b'{"error": {"code": "x y", "data": {"$tocsin": "no"}}}', "JOB_FAILED", None),
    (b'{"error": {"code": "x", "data": "' + b"y" * 3_000 + b'"}}', "x", None),
    (b'{"error": {"code": "x", "data": ' + b"[" * 900 + b"]" * 900 + b"}}", "x", None),
    (b'{"error": "none"}', "JOB_FAILED", None),
    (b'[{"error": {"code": "x"}}]', "JOB_FAILED", None),
    (b"<html>", "JOB_FAILED", None),
]


@on_simulated_host()
async def test_any_receiver_may_say_a_code_and_what_is_none_is_passed_over(sim: SimulatedHost) -> None:
    for n, (body, code, data) in enumerate(ANSWERS):
        sim.reply = lambda one, body=body: Answer(418, {}, body)  # type: ignore[misc]
        await sim.jobs.run_after(1, "work:run", id=f"a{n}", keep_result="1h", retry=Retry(max_retries=0))
        with pytest.raises(JobFailedError) as told:
            await sim.jobs.result(f"a{n}")

        assert (told.value.code, told.value.status, told.value.data) == (code, 418, data), body
