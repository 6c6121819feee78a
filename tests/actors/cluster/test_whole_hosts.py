"""Whole hosts of one store: who comes, who goes, and what becomes of what was under way."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.cluster.village import NAMES, TIMING, Village, in_village
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http.metrics.collector import metrics
from tocsin.actors.http.metrics.families import CLUSTER
from tocsin.actors.http.metrics.traffic import Traffic
from tocsin.actors.runtime.store_clock import BAND_MS
from tocsin.actors.testing.clock import START_MS, VirtualClock
from tocsin.errors import StoreLocked


def ids(village: Village) -> list[str]:
    return [job_id for _, job_id in village.arrived]


async def settled(*hosts: ActorHost) -> None:
    """Check that each host says of each instance that nothing is left."""
    for host in hosts:
        for name in NAMES:
            status = await host.scheduler(name).status()
            assert (status.backlog, status.in_flight, status.dead, status.health) == (0, 0, 0, "green"), name


def test_a_host_that_stops_hands_over_at_once_and_its_callbacks_end_in_peace() -> None:
    async def main(village: Village) -> None:
        village.answer_s = 5.0
        one, two = await village.join("one"), await village.join("two")
        assert 0 < len(village.owned_by(one)) < len(NAMES)
        for name in NAMES:
            await two.scheduler(name).run_after(0, "w:first", {"n": name})
        await asyncio.sleep(0.5)
        assert len(ids(village)) == len(NAMES)

        began = village.clock.monotonic()
        stopping = asyncio.create_task(one.stop())
        for name in NAMES:
            await two.scheduler(name).run_after(0, "w:second", {"n": name})
        await asyncio.sleep(began + 1.0 - village.clock.monotonic())
        assert len(ids(village)) == 2 * len(NAMES), "the other host has all, though callbacks are in flight here"
        await stopping
        assert village.clock.monotonic() - began < 6.0
        await asyncio.sleep(6.0)
        await settled(two)
        assert len(set(ids(village))) == len(ids(village)) == 2 * len(NAMES), "each was delivered once"

    in_village(main)


def test_a_server_that_lets_requests_end_before_it_stops_has_handed_over_meanwhile() -> None:
    async def main(village: Village) -> None:
        one, two = await village.join("one"), await village.join("two")
        one.stop_waiting()
        await asyncio.sleep(1.0)
        assert len(village.owned_by(two)) == len(NAMES), "what is due does not wait for requests"
        for name in NAMES:
            await one.scheduler(name).run_after(0, "w:r")  # a request that is under way
        await asyncio.sleep(0.5)
        assert len(set(ids(village))) == len(NAMES)
        await one.stop()
        await settled(two)

        two.stop_waiting()
        await asyncio.sleep(1.0)
        assert len(village.owned_by(two)) == len(NAMES), "the last host has nobody to leave it to"
        await two.scheduler("t0").run_after(0, "w:r")

    in_village(main)


def test_callbacks_of_the_last_host_end_before_it_lets_go_and_nothing_is_left_for_the_next() -> None:
    async def main(village: Village) -> None:
        village.answer_s = 3.0
        one = await village.join("one")
        for name in NAMES:
            await one.scheduler(name).run_after(0, "w:r")
        await asyncio.sleep(0.5)
        await one.stop()
        assert not village.disk.state.mail
        two = await village.join("two")
        await settled(two)
        assert len(ids(village)) == len(NAMES)

    in_village(main)


def test_who_waits_at_a_host_that_is_drained_goes_on_waiting_at_the_next() -> None:
    async def main(village: Village) -> None:
        one, two = await village.join("one"), await village.join("two")
        name = village.owned_by(one)[0]
        jobs = one.scheduler(name)
        job = await jobs.run_after("1h", "w:r", {"n": 1}, queue="q", keep_result="1h")
        claiming = asyncio.create_task(jobs.claim("q", wait="20s"))
        waiting = asyncio.create_task(jobs.result(job, timeout="20s"))
        await asyncio.sleep(0.1)
        assert one._service.inflight(name).waiting_claims.busy

        assert await one.runtime.provider.drain_host(one.runtime.provider.owner)  # type: ignore[attr-defined]
        await asyncio.sleep(1.0)
        assert not village.owned_by(one) and not one._service.inflight(name).waiting_claims.busy
        await two.scheduler(name).run_after(0, "w:r", {"n": 2}, queue="q")
        (claimed,) = await claiming
        await jobs.complete(claimed.id, claimed.lease, result={})
        await two.scheduler(name).reschedule(job, after=0)
        (claimed,) = await jobs.claim("q", wait="5s")
        await jobs.complete(claimed.id, claimed.lease, result={"n": 3})
        assert await waiting == {"n": 3}

    in_village(main)


def test_the_test_clock_of_an_instance_is_known_where_it_goes() -> None:
    async def main(village: Village) -> None:
        one, two = await village.join("one"), await village.join("two")
        name = village.owned_by(one)[0]
        await two.scheduler(name).clock.create(at=START_MS + 86_400_000)
        await one.scheduler(name).run_after("1h", "w:r", id="later")
        for host in (one, two):
            found = await host.scheduler(name).get("later")
            assert found is not None and found.scheduled_for == START_MS + 90_000_000
        await one.stop()
        await asyncio.sleep(1.0)
        assert two._service.clocks.at(name) == START_MS + 86_400_000
        await two.scheduler(name).clock.advance(by="2h")
        assert len(ids(village)) == 1

    in_village(main)


def test_a_lease_of_another_host_ends_when_it_has_ended_by_the_clock_of_any_and_an_own_one_in_time() -> None:
    """Each host knows the time of the store only as well as the way there and back of its signs of life tells."""

    async def main(village: Village) -> None:
        one, two = await village.join("one"), await village.join("two")
        differ_ms = int(TIMING.ttl_s - TIMING.margin_s) * 500 + 2 * BAND_MS
        name = village.owned_by(one)[0]
        jobs = two.scheduler(name)
        await jobs.run_after(0, "w:r", queue="q")

        (first,) = await jobs.claim("q", lease_ms=20_000)
        await one.stop()
        (second,) = await jobs.claim("q", wait="30s", lease_ms=20_000)
        assert differ_ms <= village.clock.now_ms() - first.lease_until < differ_ms + 3_000
        (third,) = await jobs.claim("q", wait="30s")
        assert 0 <= village.clock.now_ms() - second.lease_until < 3_000
        assert {first.attempt, second.attempt, third.attempt} == {1, 2, 3}

    in_village(main)


def test_a_host_that_starts_nothing_owns_nothing_beside_others_and_all_when_it_is_alone() -> None:
    async def main(village: Village) -> None:
        quiet, busy = await village.join("quiet", dispatch=False), await village.join("busy")
        assert village.owned_by(quiet) == [] and len(village.owned_by(busy)) == len(NAMES)
        await quiet.scheduler("t0").run_after("1m", "w:r")
        with pytest.raises(StoreLocked, match=r"1 other hosts .* do what is due by themselves"):
            await quiet.run_due()
        await busy.stop()
        await asyncio.sleep(61.0)
        assert len(village.owned_by(quiet)) == len(NAMES) and not ids(village)
        assert (await quiet.run_due()).succeeded == 1

    in_village(main)


def test_hosts_whose_clocks_are_off_agree_on_what_is_due_and_say_so() -> None:
    async def main(village: Village) -> None:
        early = await village.join("early", clock=VirtualClock(START_MS + 3_600_000, look_again_s=1.0))
        late = await village.join("late", clock=VirtualClock(START_MS - 60_000, look_again_s=1.0))
        began = village.clock.now_ms()
        for name in NAMES:
            for host in (early, late):
                await host.scheduler(name).run_after("10s", "w:r")
        await asyncio.sleep(9.0)
        assert not ids(village)
        await asyncio.sleep(2.0)
        assert len(ids(village)) == 2 * len(NAMES)
        assert 10_000 <= village.arrived[0][0] - began <= 10_500
        assert [one.code for one in early.health()] == [one.code for one in late.health()] == ["CLOCK_OFF"]
        assert "1h ahead of the store's" in early.health()[0].message

    in_village(main)


def test_every_host_proves_that_it_writes_and_status_and_metrics_tell_of_all() -> None:
    async def main(village: Village) -> None:
        hosts = [await village.join(name) for name in ("one", "two", "three")]
        for host in hosts:
            await host._write()
        beats = [name for name in village.disk.state.rows.maps if name.startswith("tocsin-pulse/")]
        assert len(beats) == 3
        for host in hosts:
            cluster = (await host.scheduler("t0").status()).cluster
            assert cluster is not None and sum(one.slots for one in cluster.hosts) == 4096
            assert [one.state for one in cluster.hosts] == ["up"] * 3 and cluster.unowned == 0
            assert cluster.owner == next(
                one.runtime.provider.owner for one in hosts if one._service.is_here("t0")
            ) and cluster.owner in {one.host for one in cluster.hosts}
            told = {one.name: one for one in metrics(await host.measures(), Traffic())}
            assert {one.name for one in CLUSTER} <= told.keys()
        await hosts[0].scheduler("t1").run_after("1h", "w:r")
        counted = [(await host.measures()).schedulers for host in hosts]
        assert sum(one.counts.waiting for one in counted if one is not None and one.counts is not None) == 1

    in_village(main)
