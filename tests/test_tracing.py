"""One trace from the request that schedules a job to the handler that runs it, through every door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import httpx
import msgspec
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from tests.actors.sharing.town import Town
from tests.dispatch.worker.claim_sources import until
from tests.spans import Spans, context_of, id_of, parent_of, said, trace_of
from tocsin import ActorHost, Client, Job, Outbox, Received, Receiver, Retry, RetryLater, Scheduler, SyncClient, Worker
from tocsin.dispatch.asgi_transport import AsgiTransport
from tocsin.dispatch.transport import Answer
from tocsin.errors import SettingsError
from tocsin.testing import FakeReceiver, SimNetwork, VirtualClock, simulate

pytestmark = pytest.mark.anyio
SECRET = "whsec_" + "b25lIHRyYWNlIGZyb20gZW5kIHRvIGVuZA=="
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


class World:
    """A host whose callbacks come to a receiver in this process, both with the spans of this test."""

    def __init__(self, spans: Spans, host: ActorHost, receiver: Receiver) -> None:
        self.spans, self.host, self.receiver = spans, host, receiver
        self.jobs = host.scheduler("shop")
        self.got: list[Received] = []
        receiver.register({"mail:send": self._handle})

    def _handle(self, args: Any, job: Received) -> None:
        with self.spans.tracer.start_as_current_span("smtp"):
            self.got.append(job)
        if args == "fails" or (args == "fails once" and len(self.got) == 1):
            raise ValueError("no such mailbox")
        if args == "later":
            raise RetryLater(3600)

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.host.asgi(insecure=True)), base_url="http://localhost"
        )


@asynccontextmanager
async def world(*, tracing: bool = True) -> AsyncIterator[World]:
    spans = Spans()
    receiver = Receiver([SECRET], tracing=spans.provider)
    async with ActorHost.open(
        "memory:", origin="http://app.example", secrets=[SECRET], transport=AsgiTransport(receiver),
        tracing=spans.provider if tracing else False,
    ) as host, receiver:  # fmt: skip
        yield World(spans, host, receiver)


async def until_dead(jobs: Scheduler) -> None:
    async with asyncio.timeout(10):
        while not (await jobs.dead()).records:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.001)


# ---- From end to end -----------------------------------------------------------------------------


async def test_one_trace_leads_from_a_web_request_to_the_handler_of_its_job() -> None:
    async with world() as w:
        with w.spans.tracer.start_as_current_span("POST /orders") as request:
            job_id = await w.jobs.run_after(0, "mail:send", {"to": "private@example.com"}, pool="smtp")
        await until(lambda: len(w.spans.all) == 5)

        inner = w.spans.one("smtp")
        assert w.spans.lineage(inner) == [
            "POST /orders", "schedule mail:send", "attempt mail:send", "process mail:send", "smtp",
        ]  # fmt: skip
        assert {trace_of(span) for span in w.spans.all} == {f"{request.get_span_context().trace_id:032x}"}
        made, sent, ran = (w.spans.one(f"{name} mail:send") for name in ("schedule", "attempt", "process"))
        assert [span.kind for span in (made, sent, ran)] == [SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER]
        assert said(made) == {
            "messaging.system": "tocsin", "messaging.operation.name": "schedule",
            "messaging.operation.type": "create", "messaging.destination.name": "mail:send",
            "messaging.message.id": job_id, "tocsin.instance": "shop", "tocsin.job.id": job_id,
            "tocsin.path": "mail:send",
        }  # fmt: skip
        assert said(sent) == {
            "messaging.system": "tocsin", "messaging.operation.name": "attempt", "messaging.operation.type": "send",
            "messaging.destination.name": "mail:send", "messaging.message.id": w.got[0].webhook_id,
            "tocsin.instance": "shop", "tocsin.job.id": job_id, "tocsin.path": "mail:send", "tocsin.attempt": 1,
            "tocsin.outcome": "done", "http.response.status_code": 200,
        }  # fmt: skip
        assert said(ran)["tocsin.attempt"] == 1 and said(ran)["messaging.operation.type"] == "process"
        assert w.got[0].traceparent == parent_of(sent)
        assert "private@example.com" not in "".join(span.to_json() for span in w.spans.all)


async def test_each_attempt_is_a_span_of_its_own_and_errors_are_recorded() -> None:
    async with world() as w:
        retry = Retry(max_retries=1, base_ms=0)
        await w.jobs.run_after(0, "mail:send", "fails once", retry=retry, then=[Job(path="mail:send", args="then")])
        await until(lambda: len(w.spans.named("attempt mail:send")) == 3)

        first, again, then = w.spans.named("attempt mail:send")
        made = w.spans.one("schedule mail:send")
        assert len({trace_of(span) for span in w.spans.all}) == 1
        assert {span.parent.span_id for span in (first, again, then) if span.parent} == {context_of(made).span_id}
        assert [said(span)["tocsin.attempt"] for span in (first, again, then)] == [1, 2, 1]
        assert first.status.status_code is StatusCode.ERROR and again.status.status_code is StatusCode.UNSET
        assert said(first)["error.type"] == "500" and said(first)["tocsin.outcome"] == "failed"
        failed = w.spans.named("process mail:send")[0]
        assert failed.status.status_code is StatusCode.ERROR and said(failed)["error.type"] == "ValueError"
        assert [event.name for event in failed.events] == ["exception"]


async def test_a_handler_that_asks_to_be_called_later_has_not_failed() -> None:
    async with world() as w:
        await w.jobs.run_after(0, "mail:send", "later")
        await until(lambda: len(w.spans.named("attempt mail:send")) == 1)

        ran = w.spans.one("process mail:send")
        assert ran.status.status_code is StatusCode.UNSET and said(ran)["tocsin.outcome"] == "later"
        assert said(w.spans.one("attempt mail:send"))["tocsin.outcome"] == "busy"


async def test_a_dead_job_that_is_retried_goes_on_in_its_trace() -> None:
    async with world() as w:
        await w.jobs.run_after(0, "mail:send", "fails", id="a", retry=Retry(max_retries=0))
        await until(lambda: len(w.spans.named("attempt mail:send")) == 1)
        await until_dead(w.jobs)
        assert (await w.jobs.dead_retry("a")).retried
        await until(lambda: len(w.spans.named("attempt mail:send")) == 2)

        assert len({trace_of(span) for span in w.spans.all}) == 1


async def test_occurrences_of_a_schedule_begin_traces_of_their_own() -> None:
    async with world() as w:
        with w.spans.tracer.start_as_current_span("deploy"):
            await w.jobs.schedules.put("nightly", "mail:send", cron="0 0 * * *")
            await w.jobs.schedules.trigger("nightly")
        await until(lambda: len(w.spans.named("attempt mail:send")) == 1)

        assert w.spans.lineage(w.spans.one("smtp")) == ["attempt mail:send", "process mail:send", "smtp"]


async def test_a_trace_that_is_not_sampled_is_passed_on_and_records_nothing() -> None:
    async with world() as w:
        async with w.http() as http:
            body = {"functionPath": "mail:send", "delayMs": 0}
            await http.post("/i/shop/schedule", json=body, headers={"traceparent": PARENT[:-1] + "0"})
        await until(lambda: len(w.got) == 1)

        assert w.spans.all == []
        given = w.got[0].traceparent or ""
        assert given[:36] == PARENT[:36] and given[-2:] == "00" and given[36:52] != SPAN


async def test_without_tracing_there_are_no_spans_and_headers_still_count() -> None:
    async with world(tracing=False) as w:
        with w.spans.tracer.start_as_current_span("request"):
            await w.jobs.run_after(0, "mail:send")
        await until(lambda: len(w.got) == 1)
        async with w.http() as http:
            body = {"functionPath": "mail:send", "delayMs": 0}
            await http.post("/i/shop/schedule", json=body, headers={"traceparent": PARENT, "tracestate": "a=1"})
        await until(lambda: len(w.got) == 2)

        assert not [span for span in w.spans.all if span.name.startswith(("schedule", "attempt"))]
        alone, traced = w.got
        assert (alone.traceparent or "")[3:35] != f"{context_of(w.spans.one('request')).trace_id:032x}"
        assert (traced.traceparent or "")[3:35] == TRACE and (traced.traceparent or "")[36:52] != SPAN
        assert traced.tracestate == "a=1"


def test_what_is_no_provider_is_refused() -> None:
    with pytest.raises(SettingsError, match="tracing must be True, False or a TracerProvider, not a str"):
        Receiver([SECRET], tracing="yes")  # type: ignore[arg-type]


# ---- Over HTTP -----------------------------------------------------------------------------------


async def test_headers_of_a_request_are_the_parent_of_its_jobs_and_members_of_a_job_come_first() -> None:
    other = "00-" + "4bf92f3577b34da6a3ce929d0e0e4736" + f"-{SPAN}-01"
    async with world() as w, w.http() as http:
        jobs = [
            {"functionPath": "mail:send", "delayMs": 0, "id": "by-header"},
            {"functionPath": "mail:send", "delayMs": 0, "id": "by-member", "traceparent": other, "tracestate": "b=2"},
        ]
        answer = await http.post(
            "/i/shop/schedule/batch", json={"jobs": jobs}, headers={"traceparent": PARENT, "tracestate": "a=1"}
        )
        await until(lambda: len(w.got) == 2)

    assert all("error" not in one for one in answer.json()["results"])
    got = {job.id: job for job in w.got}
    assert (got["by-header"].traceparent or "")[3:35] == TRACE and got["by-header"].tracestate == "a=1"
    assert (got["by-member"].traceparent or "")[3:35] == other[3:35] and got["by-member"].tracestate == "b=2"
    [made] = w.spans.named("schedule mail:send")
    assert made.parent is not None and f"{made.parent.span_id:016x}" == SPAN and made.parent.is_remote


@pytest.mark.parametrize(
    "headers",
    [[("traceparent", "nonsense")], [("traceparent", PARENT), ("traceparent", PARENT)], [("tracestate", "a=1")]],
)
async def test_headers_that_are_not_valid_are_ignored(headers: list[tuple[str, str]]) -> None:
    async with world() as w, w.http() as http:
        body = {"functionPath": "mail:send", "delayMs": 0, "traceparent": "00-0-0-0"}
        answer = await http.post("/i/shop/schedule", json=body, headers=headers)
        await until(lambda: len(w.got) == 1)

    assert answer.status_code == 200
    assert w.spans.one("schedule mail:send").parent is None
    assert (w.got[0].traceparent or "")[3:35] != TRACE and w.got[0].tracestate is None


async def test_a_traceparent_that_is_no_text_is_refused() -> None:
    async with world() as w, w.http() as http:
        answer = await http.post("/schedule", json={"functionPath": "a:b", "delayMs": 0, "traceparent": 7})

    assert answer.status_code == 400 and "traceparent" in answer.json()["error"]["message"]


async def test_keeping_a_job_that_is_there_does_not_depend_on_the_trace() -> None:
    async with world() as w:
        for _ in range(2):
            with w.spans.tracer.start_as_current_span("request"):
                [said_of] = await w.jobs.submit_many(
                    [Job(path="mail:send", at=4_000_000_000_000, options={"id": "a", "on_conflict": "keep"})]
                )

    assert msgspec.to_builtins(said_of) | {"created": False, "identical": True} == msgspec.to_builtins(said_of)


async def test_a_client_s_span_is_the_one_that_a_job_comes_from() -> None:
    spans = Spans()
    async with world() as w:
        app = httpx.ASGITransport(w.host.asgi(insecure=True))
        async with Client("http://localhost", transport=app, tracing=spans.provider) as client:
            jobs = client.scheduler("shop")
            with spans.tracer.start_as_current_span("request"):
                ids = [await jobs.run_after(0, "mail:send"), await jobs.run_at(100_000_000_000, "mail:send")]
                [scheduled] = await jobs.submit_many([Job(path="mail:send", after=0)])
                assert not isinstance(scheduled, Exception)
                ids.append(scheduled.id)
                async with jobs.deferred() as later:
                    ids.append(later.run_after(0, "mail:send"))
                ids.append(await jobs.run_after(0, "mail:send", id="own"))
        await until(lambda: len(w.spans.named("attempt mail:send")) == 5)

    made = spans.named("schedule mail:send")
    assert [spans.lineage(one) for one in made] == [["request", "schedule mail:send"]] * 5
    assert [said(one)["tocsin.job.id"] for one in made] == ids == [said(one)["messaging.message.id"] for one in made]
    sent = w.spans.named("attempt mail:send")
    assert {f"{one.parent.span_id:016x}" for one in sent if one.parent} == {id_of(one) for one in made}
    assert w.spans.named("schedule mail:send") == []


def test_a_blocking_client_goes_on_with_the_trace_of_the_thread_that_calls_it() -> None:
    spans, bodies = Spans(), list[dict[str, Any]]()

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(msgspec.json.decode(request.content))
        id = bodies[-1].get("id", "the server's own")
        return httpx.Response(200, json={"id": id, "scheduledFor": 4_000_000_000_000, "created": True})

    with (
        SyncClient("http://localhost", transport=httpx.MockTransport(answer), tracing=spans.provider) as client,
        spans.tracer.start_as_current_span("view"),
    ):
        id = client.scheduler("shop").run_after("1h", "mail:send")

    made = spans.one("schedule mail:send")
    assert said(made)["tocsin.job.id"] == id
    assert spans.lineage(made) == ["view", "schedule mail:send"]
    assert bodies[0]["traceparent"] == parent_of(made)


async def test_an_outbox_row_keeps_the_trace_of_the_transaction_that_wrote_it() -> None:
    spans = Spans()
    outbox = Outbox("shop", tracing=spans.provider)
    with spans.tracer.start_as_current_span("order"):
        entry = outbox.run_after(0, "mail:send")
    text: Any = entry.values["job"]
    async with world() as w, w.http() as http:
        await http.post("/i/shop/schedule", content=text, headers={"content-type": "application/json"})
        await until(lambda: len(w.got) == 1)

    made = spans.one("schedule mail:send")
    assert spans.lineage(made) == ["order", "schedule mail:send"] and said(made)["tocsin.job.id"] == entry.id
    [sent] = w.spans.named("attempt mail:send")
    assert sent.parent is not None and f"{sent.parent.span_id:016x}" == id_of(made)


# ---- Workers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_worker_s_handler_runs_in_the_trace_of_its_job(blocking: bool) -> None:
    async with world() as w:

        def inside() -> None:
            with w.spans.tracer.start_as_current_span("query"):
                pass

        async def handler(args: Any, context: Any) -> None:
            inside()
            raise ValueError(context.traceparent)

        def blocks(args: Any, context: Any) -> None:
            inside()
            raise ValueError(context.traceparent)

        with w.spans.tracer.start_as_current_span("request"):
            await w.jobs.run_after(0, "work", queue="q", retry=Retry(max_retries=0))
        handlers: Mapping[str, Any] = {"work": blocks if blocking else handler}
        async with Worker(w.jobs, handlers, tracing=w.spans.provider) as worker:
            await until(lambda: worker.tally.claimed == 1 and len(w.spans.named("process work")) == 1)

    assert w.spans.lineage(w.spans.one("query")) == ["request", "schedule work", "claim work", "process work", "query"]
    ran, claimed = w.spans.one("process work"), w.spans.one("claim work")
    assert ran.status.description == f"ValueError: {parent_of(claimed)}"
    assert said(claimed)["messaging.destination.name"] == said(ran)["messaging.destination.name"] == "q"


async def test_a_worker_s_handlers_do_not_run_in_the_trace_of_what_started_the_worker() -> None:
    spans = Spans()
    async with world(tracing=False) as w:
        await w.jobs.run_after(0, "work", queue="q")
        with spans.tracer.start_as_current_span("startup"):
            async with Worker(w.jobs, {"work": lambda args: None}, tracing=spans.provider) as worker:
                await until(lambda: worker.tally.done == 1)

    assert spans.one("process work").parent is None


# ---- Several processes, and virtual time ---------------------------------------------------------


def test_a_follower_s_jobs_and_retries_are_one_trace() -> None:
    spans = Spans()

    async def main(random: Random) -> None:
        town = Town(random)
        async with town.host("first"), town.host("second", tracing=spans.provider) as follower:
            with spans.tracer.start_as_current_span("request"):
                await follower.scheduler("shop").run_after("1m", "mail:send")
            await asyncio.sleep(120)
        seen.extend(delivery.headers["traceparent"] for delivery in town.receiver.deliveries)

    seen: list[str] = []
    simulate(1, main)

    assert spans.lineage(spans.one("schedule mail:send")) == ["request", "schedule mail:send"]
    assert [parent[3:35] for parent in seen] == [trace_of(spans.one("schedule mail:send"))]


def test_the_ids_of_spans_come_from_the_injected_random() -> None:
    async def main(random: Random) -> None:
        clock = VirtualClock()
        receiver = FakeReceiver([SECRET], now_ms=clock.now_ms, answer=lambda delivery: Answer(500, {}, b""))
        async with ActorHost.open(
            "memory:", origin="https://app.example", secrets=[SECRET], transport=SimNetwork(receiver, random),
            clock=clock, random=random,
        ) as host:  # fmt: skip
            jobs: Scheduler = host.scheduler("shop")
            app = httpx.ASGITransport(host.asgi(insecure=True))
            async with httpx.AsyncClient(transport=app, base_url="http://localhost") as http:
                body = {"functionPath": "mail:send", "delayMs": 0, "retry": {"maxRetries": 2}, "id": "a"}
                await http.post("/i/shop/schedule", json=body, headers={"traceparent": PARENT})
            await asyncio.sleep(3600)
            assert (await jobs.dead()).records[0].id == "a"
        seen.append([delivery.headers["traceparent"] for delivery in receiver.deliveries])

    seen: list[list[str]] = []
    simulate(1, main)
    simulate(1, main)

    assert seen[0] == seen[1] and len(set(seen[0])) == 3
    assert all(parent[:36] == PARENT[:36] and parent[36:52] != SPAN for parent in seen[0])
