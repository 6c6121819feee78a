"""What a handler returns is what its job came to; what follows it in a chain is told."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.dispatch.receiver.signed_callbacks import ReceiverFixture
from tocsin import Accepted, LeaseClient, MemoryDedup, RetryLater, SQLiteDedup, TerminalError
from tocsin.dispatch.callback import Verdict
from tocsin.dispatch.dispatcher import body_of
from tocsin.dispatch.outcome import classify
from tocsin.dispatch.receiver.dedup import Dedup
from tocsin.dispatch.receiver.received import Parent, Received
from tocsin.dispatch.transport import Answer
from tocsin.dispatch.values import decode
from tocsin.errors import StoreUnavailable, UnreachableError

pytestmark = pytest.mark.anyio


def returning(value: Any, dedup: Dedup | None = None) -> ReceiverFixture:
    """A plain function returns it the first time; it never runs again."""
    fixture, values = ReceiverFixture(dedup), [value]
    fixture.receiver.register({"invoices:send": lambda args: values.pop()})
    return fixture


async def twice(fixture: ReceiverFixture) -> tuple[Answer, Answer]:
    return await fixture.send(), await fixture.send()


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


@pytest.mark.parametrize("value", ["x" * 65_534, "x" * 65_535])
async def test_what_is_too_long_for_a_result_is_said_to_every_delivery_of_the_job(value: str, dedup: Dedup) -> None:
    first, second = await twice(returning(value, dedup))

    assert first == second and first.status == 200
    if len(value) == 65_534:
        assert classify(first, 0).result == b'"%b"' % value.encode()
    else:
        assert first.headers["tocsin-result"] == "0"
        assert b"65537 bytes, at most 65536 are sent" in first.body


@pytest.mark.parametrize("value", [{"total": 42}, [], 0, False, "", date(2027, 1, 1)])
async def test_a_job_that_was_done_before_is_answered_with_its_result(value: Any, dedup: Dedup) -> None:
    fixture = returning(value, dedup)
    first = await fixture.send()
    fixture.clock.forward(23 * 3600)
    second, third = await twice(fixture)

    assert first == second == third
    result = classify(third, 0).result
    assert result is not None and decode(result) == value


async def test_a_job_that_came_to_nothing_is_answered_as_a_duplicate(dedup: Dedup) -> None:
    first, second = await twice(returning(None, dedup))

    assert classify(first, 0).result is None and classify(second, 0).result is None
    assert second.body == b'{"ok":true,"duplicate":true}'


async def test_of_each_run_of_an_id_its_own_result_is_kept(dedup: Dedup) -> None:
    fixture = ReceiverFixture(dedup)
    fixture.receiver.register({"invoices:send": lambda args: args})
    for n in (1, 2, 3):
        assert classify(await fixture.send(n, incarnation=f"i{n}"), 0).result == b"%d" % n
    for n in (3, 2, 1):
        assert classify(await fixture.send(9, incarnation=f"i{n}"), 0).result == b"%d" % n


async def test_a_delivery_that_was_declined_hears_the_result_when_it_comes_again(dedup: Dedup) -> None:
    fixture, begun, go = ReceiverFixture(dedup), asyncio.Event(), asyncio.Event()

    @fixture.receiver.handler("invoices:send")
    async def send(args: Any) -> dict[str, int]:
        begun.set()
        await go.wait()
        return {"total": 42}

    first = asyncio.create_task(fixture.send())
    await begun.wait()
    declined = await fixture.send()
    go.set()
    await first
    again = await fixture.send()

    assert classify(declined, 0).verdict is Verdict.DECLINED
    assert classify(again, 0).result == b'{"total":42}'


@pytest.mark.parametrize("raised", [TerminalError("never"), RetryLater(5), ValueError("now and then")])
async def test_what_failed_has_no_answer_to_repeat_and_runs_again(raised: Exception, dedup: Dedup) -> None:
    """A dead job that is retried by hand keeps its webhook-id: it must not hear once more that it is dead."""
    fixture, fails = ReceiverFixture(dedup), [True]

    @fixture.receiver.handler("invoices:send")
    async def send(args: Any) -> int:
        if fails.pop():
            raise raised
        return 7

    assert (await fixture.send()).status >= 400
    fails.append(False)
    assert classify(await fixture.send(), 0).result == b"7"
    assert classify(await fixture.send(), 0).result == b"7"


async def test_accepted_work_has_the_result_that_it_was_completed_with(dedup: Dedup) -> None:
    """Also where the scheduler could not be told: the next attempt tells it."""
    fixture = ReceiverFixture(dedup)
    fixture.receiver.register({"invoices:send": lambda args: Accepted(60_000)})
    callback = fixture.scheduler.callback()
    headers, body = fixture.scheduler.signed(callback, body_of(callback))
    job = fixture.receiver.verify(headers, body)
    assert (await fixture.receiver.handle(headers, body)).status == 202
    network = httpx.MockTransport(lambda _: httpx.Response(404))
    async with LeaseClient(
        "http://server", dedup=fixture.receiver.dedup, transport=network, patience_s=0, clock=fixture.clock
    ) as leases:
        with pytest.raises(UnreachableError):
            await leases.complete(job, result={"total": 42})

    assert classify(await fixture.send(), 0).result == b'{"total":42}'


async def test_a_receiver_that_was_started_anew_knows_the_results(tmp_path: Path) -> None:
    first = returning({"total": 42}, SQLiteDedup(tmp_path / "received.db"))
    await first.send()
    await first.receiver.aclose()
    second = returning({"total": 1}, SQLiteDedup(tmp_path / "received.db"))
    answer = await second.send()
    await second.receiver.aclose()

    assert classify(answer, 0).result == b'{"total":42}'


class BeforeAnswers(MemoryDedup):
    """As users wrote it when there were no answers."""

    async def finish(self, webhook_id: str, lease: str, *, now_ms: int) -> bool:  # type: ignore[override]
        return await super().finish(webhook_id, lease, now_ms=now_ms)


async def test_a_store_written_before_there_were_answers_works_without_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixture = returning({"total": 42}, BeforeAnswers())
    first, second = await twice(fixture)

    assert classify(first, 0).result == b'{"total":42}'
    assert second.body == b'{"ok":true,"duplicate":true}'
    assert [r.message for r in caplog.records if "keeps no answers" in r.message] != []
    assert caplog.text.count("BeforeAnswers keeps no answers") == 1


class NoAnswerNow(MemoryDedup):
    """A store that claims, and cannot read."""

    async def answer(self, webhook_id: str, *, now_ms: int) -> bytes | None:
        raise StoreUnavailable("the disk does not answer")


async def test_an_answer_that_cannot_be_read_is_asked_for_again_and_not_lost() -> None:
    first, second = await twice(returning(3, NoAnswerNow()))

    assert classify(first, 0).result == b"3"
    assert classify(second, 0).verdict is Verdict.BUSY


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
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": lambda args, job: seen.append(job)})
    for parent in (("job-0", b'{"day":{"$tocsin":"date","v":"2027-01-01"}}'), ("job-0", b""), None):
        await fixture.send(id=f"job-{len(seen) + 1}", parent=parent)

    assert [job.parent for job in seen] == [Parent("job-0", {"day": date(2027, 1, 1)}), Parent("job-0", None), None]
