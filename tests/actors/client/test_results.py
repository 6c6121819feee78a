"""Results in web frameworks: `to_dict` of each is what the HTTP API answers, and frameworks take it."""

from __future__ import annotations

import inspect
import json
from decimal import Decimal
from typing import Any

import httpx
import msgspec
import pytest
from django.http import JsonResponse
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from flask import Flask, jsonify
from starlette.responses import JSONResponse as StarletteResponse

from tests.actors.client.doors import TOKENS, house
from tests.django_settings import django_urls
from tocsin import Job, Retry, TocsinError, WorkerSnapshot
from tocsin.actors.client import answers
from tocsin.actors.scheduler.model import outcomes, records, schedule_records
from tocsin.dispatch import pulled, scheduled
from tocsin.errors import ConflictError, OverloadedError

pytestmark = pytest.mark.anyio

django_urls()  # JsonResponse reads settings


def test_every_result_has_it() -> None:
    for module in (records, outcomes, schedule_records, pulled, scheduled, answers):
        for name, one in inspect.getmembers(module, inspect.isclass):
            if issubclass(one, msgspec.Struct) and one.__module__ == module.__name__ and not name.startswith("_"):
                assert callable(getattr(one, "to_dict", None)), name


async def test_it_is_what_http_answers() -> None:
    async with house("handle") as found:
        app = found.host.asgi(tokens=TOKENS)
        bearer = {"authorization": "Bearer secret-ops"}
        jobs = found.jobs
        retry = Retry(max_retries=2)
        then = [Job("c:d", after=5, options={"queue": "q"})]
        id = await jobs.run_after(
            0, "a:b", {"sum": Decimal("1.5"), "n": 2**70}, queue="q", retry=retry, keep_result="1h", then=then
        )
        await jobs.run_after("1h", "a:b", id="older", queue="q", retry=retry, pool="p")
        [claimed] = await jobs.claim("q", wait=5)
        await jobs.complete(id, claimed.lease, result={"made": b"\0"})
        await jobs.schedules.put("s", "a:b", cron="0 9 * * *", queue="q", then=then)
        await jobs.schedules.trigger("s", "k")
        await jobs.announce(
            WorkerSnapshot(id="w", queues="*", concurrency=1, status="idle", started_at=1, heartbeat_at=2)
        )
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://t/i/t", headers=bearer
        ) as http:

            async def answered(route: str, member: str = "") -> Any:
                whole = without((await http.get(route)).json(), "instanceName")
                return whole[member] if member else whole

            record = await jobs.get("older")
            assert record is not None and record.to_dict() == await answered("/get?id=older", "record")
            assert record.to_dict()["retry"]["baseMs"] == 30_000
            assert (await jobs.list()).to_dict() == await answered("/list")
            assert [one.to_dict() for one in await jobs.history(id)] == await answered(f"/history?id={id}", "attempts")
            assert [one.to_dict() for one in await jobs.why("older")] == await answered("/why?id=older", "reasons")
            assert (await jobs.status()).to_dict().keys() == (await answered("/status")).keys()
            assert (await jobs.pool("p")).to_dict() == await answered("/pool?name=p")
            assert (await jobs.pending("a:")).to_dict() == await answered("/pending?prefix=a:")
            assert (await jobs.workers()).to_dict() == await answered("/workers")
            schedule = await jobs.schedules.get("s")
            assert schedule is not None and schedule.to_dict() == await answered("/schedules/s")
            assert (await jobs.schedules.occurrences("s")).to_dict() == await answered("/schedules/s/occurrences")
            put = await http.put(
                "/owners/o/schedules",
                json={"schedules": [{"name": "r", "functionPath": "a", "everyMs": 10**7, "queue": "q"}]},
            )
            registered = await jobs.schedules.register("o", [("r", {"path": "a", "every_ms": 10**7, "queue": "q"})])
            assert registered.to_dict() == put.json()


def without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: without(one, name) for key, one in value.items() if key != name}
    return [without(one, name) for one in value] if isinstance(value, list) else value


async def test_frameworks_take_it() -> None:
    async with house("handle") as found:
        id = await found.jobs.run_after("1h", "a:b", {"sum": Decimal("1.5")}, queue="q", retry=Retry())
        record = await found.jobs.get(id)
        assert record is not None
        said = record.to_dict()
        assert json.loads(bytes(StarletteResponse(said).body)) == said
        assert json.loads(JsonResponse(said).content) == said
        with Flask("t").app_context():
            assert jsonify(said).get_json() == said
        app = FastAPI()

        async def job() -> records.Record:
            return record

        async def jobs() -> list[records.Record] | None:
            return [record]

        async def plain() -> dict[str, Any]:
            return record.to_dict()

        for path, route in (("/job", job), ("/jobs", jobs), ("/plain", plain)):
            app.get(path)(route)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as http:
            assert (await http.get("/job")).json() == said == (await http.get("/plain")).json()
            assert (await http.get("/jobs")).json() == [said]
            document = (await http.get("/openapi.json")).json()
            assert document["paths"]["/job"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]


async def test_one_line_answers_errors_as_the_http_api_does() -> None:
    app = FastAPI()

    @app.exception_handler(TocsinError)
    async def refused(request: Request, error: TocsinError) -> JSONResponse:
        return JSONResponse(error.to_dict(), error.status)

    async def conflict() -> None:
        raise ConflictError("it is at revision 2", revision=2)

    async def busy() -> None:
        raise OverloadedError("1000 events wait already")

    app.get("/conflict")(conflict)
    app.get("/busy")(busy)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as http:
        answer = await http.get("/conflict")
        assert (answer.status_code, answer.json()) == (
            409, {"error": {"code": "CONFLICT", "message": "it is at revision 2", "revision": 2}},
        )  # fmt: skip
        assert (await http.get("/busy")).status_code == 503
