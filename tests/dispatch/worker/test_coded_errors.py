"""A handler's error with a code, a status and data comes to whoever waits for the job, and is kept of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.dispatch.worker.claim_sources import HostAndSource, each_source, host_and_source, until
from tocsin import HandlerError, Retry, TerminalError, Worker
from tocsin.dispatch.failure import MAX_DATA, Failure
from tocsin.errors import InvalidInputError, JobFailedError

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[3] / "docs" / "errors.md").read_text("utf-8")
DATA = {"limit": Decimal("10.50"), "until": datetime(2027, 1, 1, tzinfo=UTC)}
SECRET = "whsec_c2VjcmV0IG9mIGF0IGxlYXN0IDI0IGJ5dGVz"


class CardDeclined(TerminalError):
    code, status = "card_declined", 402


async def failed(w: HostAndSource, error: BaseException, **options: Any) -> JobFailedError:
    """What a waiter is told of a job whose handler raises this."""

    async def charge(args: Any) -> None:
        raise error

    id = await w.jobs.run_after(0, "charge", queue="q", keep_result="1h", **options)
    async with Worker(w.source, {"charge": charge}):
        with pytest.raises(JobFailedError) as raised:
            await w.source.result(id, 10)
    assert raised.value.details == {"id": id, "state": "dead"}
    return raised.value


@each_source
@pytest.mark.parametrize("kind_of_error", [TerminalError, HandlerError])
async def test_whoever_waits_is_told_code_status_and_data(kind: str, kind_of_error: type[HandlerError]) -> None:
    """Also of an ordinary error, on the last attempt."""
    error = kind_of_error("card declined", code="card_declined", status=402, data=DATA)
    async with host_and_source(kind) as w:
        told = await failed(w, error, retry=Retry(max_retries=0))
        [letter] = (await w.jobs.dead()).records
        [attempt] = await w.jobs.history(letter.id)
        [why] = await w.jobs.why(letter.id)

    assert (told.code, told.status, told.data) == ("card_declined", 402, DATA)
    assert told.message.endswith(": card declined")
    assert letter.last_error is not None
    assert (letter.last_error.code, letter.last_error.status, letter.last_error.data) == ("card_declined", 402, DATA)
    assert (attempt.error, attempt.code, attempt.status) == ("card declined", "card_declined", 402)
    assert attempt.data == DATA
    assert "card_declined: card declined" in why.message


@each_source
@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (CardDeclined("no"), "card_declined", 402),
        (TerminalError("no"), "JOB_FAILED", 500),
        (HandlerError("no"), "JOB_FAILED", 500),
        (ValueError("no"), "JOB_FAILED", 500),
        (HandlerError("no", data=[1]), "JOB_FAILED", 500),
        (TerminalError("no", status=410), "JOB_FAILED", 410),
    ],
)
async def test_what_an_error_does_not_name_has_a_default(kind: str, error: Exception, code: str, status: int) -> None:
    async with host_and_source(kind) as w:
        told = await failed(w, error, retry=Retry(max_retries=0))

    assert (told.code, told.status, told.data) == (code, status, getattr(error, "data", None))


@each_source
async def test_what_cannot_be_kept_of_an_error_is_left_out_and_the_failure_stands(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tocsin.dispatch")
    errors = [
        TerminalError("a", code="no code", status=402),
        TerminalError("b", code="x", status=200),
        TerminalError("c", code="x", data={"long": "x" * MAX_DATA}),
        TerminalError("d", code="x", data=object()),
    ]
    async with host_and_source(kind) as w:
        told = [await failed(w, error) for error in errors]

    assert [(one.code, one.status, one.data) for one in told] == [
        ("JOB_FAILED", 402, None), ("x", 500, None), ("x", 422, None), ("x", 422, None),
    ]  # fmt: skip
    said = [record.getMessage() for record in caplog.records if record.name == "tocsin.dispatch"]
    assert [words.split(" ")[1] for words in said] == ["code", "status", "data", "data"]


@each_source
async def test_what_looks_like_a_secret_is_blanked_out_of_words_and_data(kind: str) -> None:
    error = TerminalError(f"refused {SECRET}", code="x", data={"header": [f"Bearer {SECRET}", f'"{SECRET}\\"']})
    async with host_and_source(kind) as w:
        told = await failed(w, error)
        kept = msgspec.json.encode([(await w.jobs.dead()).records, await w.jobs.history(told.details["id"])])

    assert "refused whsec_***" in told.message
    assert told.data["header"][0] == "Bearer ***"
    assert SECRET.encode()[6:] not in kept and SECRET[6:] not in str(told.data)


@each_source
async def test_a_later_success_leaves_nothing_of_the_error(kind: str) -> None:
    runs: list[int] = []

    async def charge(args: Any) -> str:
        runs.append(1)
        if len(runs) == 1:
            raise HandlerError("busy", code="busy", status=503)
        return "paid"

    async with host_and_source(kind) as w:
        id = await w.jobs.run_after(0, "charge", queue="q", keep_result="1h", retry=Retry(base_ms=0))
        async with Worker(w.source, {"charge": charge}) as worker:
            assert await w.source.result(id, 10) == "paid"
            await until(lambda: worker.tally.done == 1)
        [first, second] = await w.jobs.history(id)

    assert (first.outcome, first.code, first.status) == ("failed", "busy", 503)
    assert (second.outcome, second.code, second.status) == ("done", None, None)


async def test_the_page_s_app_answers_with_what_its_handler_said() -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/errors.md", "exec"), names)
    async with host_and_source("embedded") as w, Worker(w.jobs, {"charge": names["charge"]}):
        answered = await names["pay"](w.jobs)

    assert answered == (402, {"code": "card_declined", "data": {"retry_with": "another card"}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: Failure(one.message, "no code"), "error.code must match"),
        (lambda one: Failure(one.message, "x", 200), "error.status must be 400..599, not 200"),
        (lambda one: Failure(one.message, "x", True), "error.status must be 400..599, not True"),
        (lambda one: Failure(one.message, "x", 400, b'"' + b"x" * MAX_DATA + b'"'), "error.data: 2050 bytes"),
        (lambda one: Failure(one.message, "x", 400, b"{"), "error.data cannot be read as JSON"),
        (lambda one: Failure(one.message, "x", 400, b'{"$tocsin": 1}'), "error.data has the key"),
    ],
)
async def test_a_settlement_with_an_error_that_cannot_be_kept_is_refused(
    change: Callable[[Failure], Failure], said: str
) -> None:
    async with host_and_source("here") as w:
        await w.jobs.run_after(0, "work", id="a", queue="q")
        [one] = await w.jobs.claim("q")
        port = w.jobs._port.changes
        with pytest.raises(InvalidInputError, match=said):
            await port.complete(
                "a", one.lease, ok=False, error=change(Failure("no")), retryable=True, delay_ms=None, charge=True,
                result=None,
            )  # fmt: skip
        assert await w.jobs.complete("a", one.lease)
