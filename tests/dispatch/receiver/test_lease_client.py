"""Accepted work and the way back: against a host in this process, and against servers that fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.dispatch.receiver.signed_callbacks import NOW_MS, SECRET, Clock, ReceiverFixture
from tocsin import Accepted, ActorHost, LeaseClient, Leased, MemoryDedup, Received, Receiver, Scheduler
from tocsin.dispatch.asgi_transport import AsgiTransport
from tocsin.dispatch.receiver.dedup import Claim, Found
from tocsin.errors import (
    InvalidInputError,
    NotFoundError,
    OverloadedError,
    RequestError,
    SettingsError,
    StaleLeaseError,
    StoreFull,
    TocsinError,
    UnreachableError,
)

pytestmark = pytest.mark.anyio

JOB = Leased(instance="tenant-a", id="job-1", lease="7.1.aa", webhook_id="job-1:i1")


# ---- A real host ---------------------------------------------------------------------------------


@dataclass
class World:
    """A host, a receiver that accepts everything, and a client."""

    jobs: Scheduler
    receiver: Receiver
    leases: LeaseClient
    accepted: asyncio.Queue[Received]


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    receiver, accepted = Receiver([SECRET]), asyncio.Queue[Received]()

    @receiver.handler("work")
    async def work(args: Any, job: Received) -> Accepted:
        accepted.put_nowait(job)
        return Accepted(60_000)

    host = ActorHost.open(
        "memory:", origin="http://127.0.0.1:9", secrets=[SECRET], transport=AsgiTransport(receiver), drain_s=0
    )
    async with host:
        app = httpx.ASGITransport(host.asgi(tokens=["ops:admin:a-secret-of-the-operators"]))
        async with LeaseClient("http://127.0.0.1", dedup=receiver.dedup, transport=app) as leases:
            yield World(host.scheduler("tenant-a"), receiver, leases, accepted)
        await receiver.aclose(0)


async def ended(jobs: Scheduler, job_id: str) -> list[Any]:
    """The attempts of a job that is gone."""
    assert await jobs.get(job_id) is None
    return list(await jobs.history(job_id))


async def test_accepted_work_is_completed_with_its_lease_alone() -> None:
    async with world() as w:
        job_id = await w.jobs.run_after(0, "work", {"at": datetime(2027, 1, 1, tzinfo=UTC)})
        job = await w.accepted.get()
        assert job.args == {"at": datetime(2027, 1, 1, tzinfo=UTC)}

        until = await w.leases.extend(job, 120_000)
        assert await w.leases.complete(job.leased, result={"paid": 5})
        assert await w.leases.complete(job, result={"paid": 5}), "the same again answers the same"

        attempts = await ended(w.jobs, job_id)
        assert [(attempt.outcome, attempt.result) for attempt in attempts] == [("done", {"paid": 5})]
        assert until > job.scheduled_for + 100_000


async def test_host_receiver_and_client_of_one_app_share_its_lifespan_and_the_client_takes_a_mounted_base() -> None:
    receiver, accepted = Receiver([SECRET]), asyncio.Queue[Leased]()
    host = ActorHost.open("memory:", origin="http://127.0.0.1:9", secrets=[SECRET], transport=AsgiTransport(receiver))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with host.lifespan(app), leases, receiver:
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/jobs", host.asgi(tokens=["ops:admin:a-secret-of-the-operators"]))
    app.mount("/_tocsin", receiver)
    leases = LeaseClient("http://127.0.0.1/jobs", dedup=receiver.dedup, transport=httpx.ASGITransport(app))

    @receiver.handler("work")
    async def work(args: Any, job: Received) -> Accepted:
        accepted.put_nowait(job.leased)
        return Accepted(60_000)

    async with app.router.lifespan_context(app):
        job_id = await host.scheduler("tenant-a").run_after(0, "work")
        text = json.dumps(asdict(await accepted.get()))  # as it goes to another process
        await leases.complete(Leased(**json.loads(text)))
        attempts = await ended(host.scheduler("tenant-a"), job_id)

    assert [attempt.outcome for attempt in attempts] == ["done"]


async def test_completed_as_failed_it_is_tried_again_with_a_new_lease() -> None:
    async with world() as w:
        job_id = await w.jobs.run_after(0, "work")
        first = await w.accepted.get()

        await w.leases.complete(first, ok=False, error="card declined", delay=0)
        second = await w.accepted.get()

        assert (second.attempt, second.webhook_id) == (2, first.webhook_id)
        assert second.fence > first.fence
        with pytest.raises(StaleLeaseError):
            await w.leases.extend(first, 60_000)
        await w.leases.complete(second)
        assert [attempt.outcome for attempt in await ended(w.jobs, job_id)] == ["failed", "done"]


async def test_completed_as_never_to_be_tried_again_it_is_dead() -> None:
    async with world() as w:
        job_id = await w.jobs.run_after(0, "work")

        await w.leases.complete(await w.accepted.get(), ok=False, error="no such card", retryable=False)

        record = await w.jobs.get(job_id)
        assert record is not None and record.state == "dead"


async def test_a_reason_that_cannot_be_written_as_it_is_is_told_all_the_same() -> None:
    """As of a file whose name is not UTF-8, or of a library that tells all of its input."""
    async with world() as w:
        job_id = await w.jobs.run_after(0, "work")
        error = f"no such file: caf\udce9.txt {'x' * 1_000_000}"

        await w.leases.complete(await w.accepted.get(), ok=False, error=error, retryable=False)

        record = await w.jobs.get(job_id)
        assert record is not None and record.state == "dead" and record.last_error is not None
        assert (record.last_error.message or "").startswith("no such file: caf?.txt xxx")


async def test_a_completion_that_overtakes_its_own_answer_counts() -> None:
    async with world() as w:
        completed = asyncio.Event()

        @w.receiver.handler("hasty")
        async def hasty(args: Any, job: Received) -> Accepted:
            await w.leases.complete(job)
            completed.set()
            return Accepted()

        job_id = await w.jobs.run_after(0, "hasty")
        await completed.wait()

        assert [attempt.outcome for attempt in await ended(w.jobs, job_id)] == ["done"]


async def test_work_of_a_cancelled_job_hears_of_it() -> None:
    async with world() as w:
        job_id = await w.jobs.run_after(0, "work")
        job = await w.accepted.get()
        await w.jobs.cancel(job_id)

        with pytest.raises(StaleLeaseError):
            await w.leases.extend(job, 60_000)


# ---- What becomes of the claim -------------------------------------------------------------------


def client(answer: Callable[[httpx.Request], httpx.Response], dedup: Any = None, **options: Any) -> LeaseClient:
    return LeaseClient("http://server/jobs/", dedup=dedup, transport=httpx.MockTransport(answer), **options)


def stale(request: httpx.Request) -> httpx.Response:
    return httpx.Response(409, json={"error": {"code": "STALE_LEASE", "message": "over", "id": "job-1"}})


async def test_done_work_is_on_record_even_if_its_lease_was_over() -> None:
    """Its answer was lost, say: the next attempt is then answered as done, without being run."""
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": lambda args: Accepted(60_000)})
    request = fixture.scheduler.request()
    job = fixture.receiver.verify(*request)
    await fixture.receiver.handle(*request)
    assert (await fixture.send()).status == 409

    async with client(stale, fixture.receiver.dedup, clock=fixture.clock) as leases:
        with pytest.raises(StaleLeaseError, match="over") as raised:
            await leases.complete(job)

    assert raised.value.details == {"id": "job-1"}
    assert (await fixture.send()).status == 200


async def test_failed_work_gives_up_its_claim_and_extended_work_keeps_it() -> None:
    clock, dedup = Clock(), MemoryDedup()
    claim = Claim(JOB.webhook_id, JOB.lease, NOW_MS, NOW_MS + 1_000)
    next_one = Claim(JOB.webhook_id, "7.2.aa", NOW_MS, NOW_MS + 90_000)
    await dedup.claim(claim, now_ms=NOW_MS)

    async with client(lambda _: httpx.Response(200, json={"leaseUntil": 1}), dedup, clock=clock) as leases:
        await leases.extend(JOB, 60_000)
        clock.forward(59)
        assert await dedup.claim(next_one, now_ms=clock.ms) is Found.RUNNING
    async with client(lambda _: httpx.Response(200, json={"settled": True}), dedup, clock=clock) as leases:
        await leases.complete(JOB, ok=False)
        assert await dedup.claim(next_one, now_ms=clock.ms) is Found.NEW


async def test_a_lease_that_could_not_be_extended_keeps_no_claim() -> None:
    clock, dedup = Clock(), MemoryDedup()
    await dedup.claim(Claim(JOB.webhook_id, JOB.lease, NOW_MS, NOW_MS + 1_000), now_ms=NOW_MS)

    async with client(stale, dedup, clock=clock) as leases:
        with pytest.raises(StaleLeaseError):
            await leases.extend(JOB, 60_000)

    late = Claim(JOB.webhook_id, "7.2.aa", NOW_MS, NOW_MS + 90_000)
    assert await dedup.claim(late, now_ms=NOW_MS + 1_000) is Found.NEW


# ---- Servers and networks that fail --------------------------------------------------------------


async def test_what_is_sent() -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"settled": True, "leaseUntil": 5})

    async with client(answer, token="a-token") as leases:
        await leases.complete(JOB, ok=False, error="e", delay="5m")
        await leases.complete(JOB, result=datetime(2027, 1, 1, tzinfo=UTC))
        await leases.extend(JOB, 1_000)

    assert [str(request.url) for request in sent] == [
        "http://server/jobs/i/tenant-a/complete",
        "http://server/jobs/i/tenant-a/complete",
        "http://server/jobs/i/tenant-a/extend",
    ]
    assert sent[0].headers["authorization"] == "Bearer a-token"
    assert sent[0].content == (
        b'{"id":"job-1","lease":"7.1.aa","ok":false,"error":"e","retryable":true,"delayMs":300000}'
    )
    assert sent[1].content == (
        b'{"id":"job-1","lease":"7.1.aa","ok":true,"result":{"$tocsin":"datetime","v":"2027-01-01T00:00:00+00:00"}}'
    )
    assert sent[2].content == b'{"id":"job-1","lease":"7.1.aa","leaseMs":1000}'


@pytest.mark.parametrize("how", [{"error": "e"}, {"delay": 5}, {"retryable": False}, {"ok": False, "result": 1}])
async def test_an_end_that_contradicts_itself_is_neither_sent_nor_noted(how: dict[str, Any]) -> None:
    dedup, sent = MemoryDedup(), list[httpx.Request]()
    await dedup.claim(Claim(JOB.webhook_id, JOB.lease, NOW_MS, NOW_MS + 90_000), now_ms=NOW_MS)

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={})

    async with client(answer, dedup=dedup) as leases:
        with pytest.raises(InvalidInputError, match="ok=False"):
            await leases.complete(JOB, **how)

    assert sent == []
    again = Claim(JOB.webhook_id, "7.2.aa", NOW_MS, NOW_MS + 90_000)
    assert await dedup.claim(again, now_ms=NOW_MS + 1_000) is not Found.DONE


async def test_short_faults_are_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = no_pauses(monkeypatch)
    faults: list[Any] = [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut"),
        httpx.Response(502, text="bad gateway"),
        httpx.Response(503, json={"error": {"code": "OVERLOADED", "message": "full"}}, headers={"retry-after": "3"}),
        httpx.Response(200, json={"settled": True}),
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        fault = faults.pop(0)
        if isinstance(fault, Exception):
            raise fault
        assert isinstance(fault, httpx.Response)
        return fault

    async with client(answer) as leases:
        assert await leases.complete(JOB)

    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0]


def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the client would have slept."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def slept(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("tocsin.dispatch.receiver.lease_client.asyncio.sleep", slept)
    return pauses


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (503, {"error": {"code": "OVERLOADED", "message": "full"}}, OverloadedError),
        (502, None, UnreachableError),
    ],
)
async def test_patience_ends(status: int, content: Any, kind: type[TocsinError]) -> None:
    async with client(lambda _: httpx.Response(status, json=content), patience_s=0.1) as leases:
        with pytest.raises(kind):
            await leases.complete(JOB)


async def test_a_server_that_is_not_there_is_named() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with client(refuse, patience_s=0) as leases:
        with pytest.raises(UnreachableError, match=r"http://server/jobs did not answer: ConnectError: refused"):
            await leases.extend(JOB, 60_000)


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (400, {"error": {"code": "INVALID_INPUT", "message": "result"}}, InvalidInputError),
        (404, {"error": {"code": "NOT_FOUND", "message": "no"}}, NotFoundError),
        (507, {"error": {"code": "STORE_FULL", "message": "full"}}, StoreFull),
        (418, {"error": {"code": "TEAPOT", "message": "new"}}, RequestError),
        (404, {"detail": "Not Found"}, UnreachableError),
        (200, ["no object"], UnreachableError),
        (200, {"of": "another server"}, UnreachableError),
        (200, {"settled": 1, "leaseUntil": "soon"}, UnreachableError),
        (301, {}, UnreachableError),
    ],
)
async def test_a_refusal_is_the_error_it_was_and_is_not_repeated(
    status: int, content: Any, kind: type[TocsinError]
) -> None:
    asked = 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        return httpx.Response(status, json=content)

    async with client(answer) as leases:
        with pytest.raises(kind) as completed:
            await leases.complete(JOB)
        with pytest.raises(kind) as extended:
            await leases.extend(JOB, 60_000)

    assert type(completed.value) is type(extended.value) is kind
    assert asked == 2


@pytest.mark.parametrize(
    "url", ["", "server:8321", "ftp://server", "http://", "http://u:p@server", "http://server?x=1"]
)
def test_a_base_url_that_is_none_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(SettingsError, match="base_url") as raised:
        LeaseClient(url)
    assert "u:p" not in str(raised.value)


@pytest.mark.parametrize("token", ["", "two words", "line\n", "schlüssel"])
def test_a_token_that_no_header_holds_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(SettingsError, match="printable") as raised:
        LeaseClient(token=token)
    assert not token or token not in str(raised.value)


@pytest.mark.parametrize("lease_ms", [0, 3_600_001, True, None, "1h"])
async def test_a_lease_s_length_is_checked_before_anything_is_sent(lease_ms: Any) -> None:
    async with LeaseClient() as leases:
        with pytest.raises(InvalidInputError, match="lease_ms"):
            await leases.extend(JOB, lease_ms)
