"""What a handler returns is what its job came to; what follows it in a chain is told."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tests.dispatch.receiver.calls import Kit
from tocsin.dispatch.outcome import classify
from tocsin.dispatch.receiver.received import Parent, Received
from tocsin.dispatch.transport import Answer
from tocsin.dispatch.values import decode

pytestmark = pytest.mark.anyio


def returning(value: Any) -> Kit:
    kit = Kit()
    kit.receiver.register({"invoices:send": lambda args: value})
    return kit


@pytest.mark.parametrize("value", [{"rows": 3}, [], 0, False, "", date(2027, 1, 1)])
async def test_what_a_handler_returns_is_the_result(value: Any) -> None:
    outcome = classify(await returning(value).send(), 0)

    assert outcome.result is not None and decode(outcome.result) == value


@pytest.mark.parametrize("value", [None, object(), "x" * 70_000, {1: 2}])
async def test_what_is_no_json_is_no_result_and_the_job_is_done_all_the_same(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await returning(value).send()

    assert (answer.status, classify(answer, 0).result) == (200, None)
    assert ("result" in caplog.text) == (value is not None)


async def test_a_job_that_was_done_before_has_no_result_any_more() -> None:
    kit = returning(3)
    first, second = await kit.send(), await kit.send()

    assert classify(first, 0).result == b"3" and classify(second, 0).result is None


@pytest.mark.parametrize(
    ("content_type", "result"),
    [
        ("application/json", b"1"), ("application/json; charset=utf-8", b"1"), ("application/problem+json", b"1"),
        ("text/plain", None), ("application/xml", None), (None, None),
    ],
)  # fmt: skip
def test_an_answer_is_a_result_if_it_says_that_it_is_json(content_type: str | None, result: bytes | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}

    assert classify(Answer(200, headers, b"1"), 0).result == result


async def test_a_handler_is_told_what_the_job_before_it_came_to() -> None:
    seen: list[Received] = []
    kit = Kit()
    kit.receiver.register({"invoices:send": lambda args, job: seen.append(job)})
    for parent in (("job-0", b'{"day":{"$tocsin":"date","v":"2027-01-01"}}'), ("job-0", b""), None):
        await kit.send(id=f"job-{len(seen) + 1}", parent=parent)

    assert [job.parent for job in seen] == [Parent("job-0", {"day": date(2027, 1, 1)}), Parent("job-0", None), None]
