"""HTTP at a host that has not got the scheduler: what it answers, and how it says where the answer is from."""

from __future__ import annotations

import asyncio

import httpx

from tests.actors.cluster.city import City, House
from tests.actors.cluster.test_routing import in_city
from tocsin import Client
from tocsin.errors import NotAnsweredYetError

JOB = {"functionPath": "a:b", "delayMs": 3_600_000}


def http(house: House) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(house.host.asgi(insecure=True))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost/i/t")


def test_reads_say_that_the_store_answered_and_fresh_ones_come_from_the_owner() -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, b), http(a) as at_a, http(b) as at_b:
            made = await at_b.post("/schedule", json={**JOB, "id": "one"})
            assert (made.status_code, made.json()["id"]) == (200, "one")
            asked: dict[str, tuple[str | None, str | None]] = {}
            for path in ("/get?id=one", "/list", "/status", "/get?id=one&fresh=true", "/list?fresh=false"):
                one, other = await at_a.get(path), await at_b.get(path)
                assert one.json() == other.json() or path == "/status"
                asked[path] = one.headers.get("tocsin-source"), other.headers.get("tocsin-source")
            assert asked == {
                "/get?id=one": (None, "store"), "/list": (None, "store"), "/status": (None, None),
                "/get?id=one&fresh=true": (None, None), "/list?fresh=false": (None, "store"),
            }  # fmt: skip
            assert (await at_b.get("/list?fresh=perhaps")).status_code == 400

    in_city(main)


def test_without_an_owner_a_change_is_accepted_and_its_key_gets_the_answer_later_from_any_host() -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, b), http(a) as at_a, http(b) as at_b:
            await city.give("t", None)
            key = {"idempotency-key": "order-1"}
            first = await at_b.post("/schedule", json={**JOB, "id": "one"}, headers=key)
            assert (first.status_code, first.json()) == (202, {"id": "one", "accepted": True})
            batch = await at_b.post("/schedule/batch", json={"jobs": [{**JOB, "id": "m0"}, {**JOB, "id": "m1"}]})
            assert batch.status_code == 202 and batch.json() | {"id": ""} == {
                "id": "",
                "ids": ["m0", "m1"],
                "accepted": True,
            }
            assert (await at_a.post("/schedule", json={**JOB, "id": "one"}, headers=key)).status_code == 202
            await city.give("t", "a")
            await asyncio.sleep(0.5)
            for client in (at_a, at_b):
                later = await client.post("/schedule", json={**JOB, "id": "one"}, headers=key)
                assert (later.status_code, later.json()["id"], later.json()["created"]) == (200, "one", True)
            assert {one["id"] for one in (await at_b.get("/list")).json()["records"]} == {"one", "m0", "m1"}

    in_city(main)


def test_without_an_owner_the_overview_shows_at_once_what_the_store_tells() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b), http(b) as at_b:
            await at_b.post("/schedule", json={**JOB, "id": "one"})
            await city.give("t", None)
            began = asyncio.get_running_loop().time()
            page = await at_b.get("/ui/", follow_redirects=True)
            assert page.status_code == 200 and ">one<" in page.text
            assert asyncio.get_running_loop().time() - began < 3

    in_city(main)


def test_a_client_of_the_server_tells_what_was_accepted() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b):
            transport = httpx.ASGITransport(b.host.asgi(insecure=True))
            await city.give("t", None)
            async with Client("http://localhost", transport=transport) as client:
                try:
                    await client.scheduler("t").run_after("1h", "a:b", id="one")
                except NotAnsweredYetError as accepted:
                    assert accepted.details == {"id": "one"} and accepted.status == 202
                else:
                    raise AssertionError("it has no owner")

    in_city(main)


def test_what_needs_the_owner_is_refused_with_the_reason_and_when_to_come_again() -> None:
    async def main(city: City) -> None:
        async with city.two(is_private=True) as (_, b), http(b) as at_b:
            for refused in (
                await at_b.post("/queues/q/claim", json={"waitMs": 0}),
                await at_b.get("/changes", headers={"accept": "text/event-stream"}),
                await at_b.get("/workers"),
            ):
                assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
                assert "no address" in refused.json()["error"]["message"]
            await city.give("t", None)
            city.mail_is_full = True
            full = await at_b.post("/schedule", json=JOB)
            assert full.status_code == 503 and full.headers["retry-after"] == "5"

    in_city(main)


def test_the_live_feed_of_another_host_goes_on_at_the_next_owner() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b), http(b) as at_b:
            seq = (await at_b.get("/changes")).json()["seq"]
            waiting = asyncio.create_task(at_b.get(f"/changes?since={seq}&waitMs=10000"))
            await asyncio.sleep(0.1)
            await at_b.post("/schedule", json={**JOB, "id": "one"})
            page = (await waiting).json()
            assert page["frames"]
            waiting = asyncio.create_task(at_b.get(f"/changes?since={page['seq']}&waitMs=10000"))
            await asyncio.sleep(0.1)
            await city.give("t", None)
            await asyncio.sleep(0.1)
            await city.give("t", "b")
            frames = (await waiting).json()["frames"]
            assert frames and "one" in str(frames)  # it begins anew where the place is not known

    in_city(main)
