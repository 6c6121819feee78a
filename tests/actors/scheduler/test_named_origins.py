"""Named origins: where their callbacks go, who signs them, and that none delays another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SECRET, SimulatedHost, on_simulated_host, why_codes
from tests.in_process_transport import InProcessTransport
from tocsin import ActorHost, Job, Origin
from tocsin.actors.scheduler.model.line_names import origin_in
from tocsin.actors.testing import simulate
from tocsin.dispatch.testing import FakeReceiver
from tocsin.dispatch.transport import Answer, NeverConnected
from tocsin.errors import InvalidInputError, SettingsError

OTHER = "whsec_" + "YW5vdGhlciBzZWNyZXQsIG9mIGJpbGxpbmcgOi0p"
ORIGINS = {
    "billing": Origin(url="https://billing.example/in", secrets=[OTHER], max_in_flight=4),
    "crm": Origin(url=lambda: "https://crm.example", secrets=lambda: [OTHER], callback_path="/hooks"),
}
HOSTS = {"": "origin.example", "billing": "billing.example", "crm": "crm.example"}


class World(SimulatedHost):
    """A host with named origins, each a receiver of its own that may be away or slow."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.away: set[str] = set()
        self.slow: dict[str, float] = {}
        self.busy: dict[str, str] = {}
        self.urls: list[str] = []
        self.running, self.most = Counter[str](), Counter[str]()
        self.receivers = {name: FakeReceiver([OTHER if name else SECRET], now_ms=self.clock.now_ms) for name in HOSTS}

    def ids(self, origin: str) -> list[str]:
        return [one.id for one in self.receivers[origin].deliveries]


class Roads(InProcessTransport):
    """One transport to all receivers, by the host of the URL."""

    def __init__(self, world: World) -> None:
        super().__init__(world.receiver)
        self._world = world

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **bounds: Any) -> Answer:
        world = self._world
        origin = next(name for name, host in HOSTS.items() if f"//{host}/" in url)
        if origin in world.away:
            raise NeverConnected("refused")
        world.urls.append(url)
        world.running[origin] += 1
        world.most[origin] = max(world.most[origin], world.running[origin])
        try:
            await asyncio.sleep(world.slow.get(origin, 0))
            answer = await InProcessTransport(world.receivers[origin]).post(url, headers, body)
            if origin in world.busy:
                return Answer(503, {"retry-after": world.busy[origin]}, b"")
            return answer
        finally:
            world.running[origin] -= 1


def in_world(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def main(random: Random) -> None:
            world = World(random)
            await opened(world)
            await test(world)
            await world.close()
            assert await world.faults() == []

        simulate(11, main)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def opened(world: World, origins: Mapping[str, Origin] = ORIGINS, **options: Any) -> None:
    await world.open(transport=Roads(world), origins=origins, **options)


@in_world
async def test_a_job_goes_to_the_origin_it_names_signed_with_the_secrets_of_that_one_only(world: World) -> None:
    for origin in HOSTS:
        named: dict[str, Any] = {"origin": origin} if origin else {}
        await world.jobs.run_after(0, "work:run", id=origin or "own", **named)
    then: Any = [Job("work:next", options={"origin": "crm"})]
    await world.jobs.run_after(1, "work:first", id="first", origin="billing", then=then)
    await world.jobs.schedules.put("daily", "work:daily", every=60, origin="billing")
    await world.sleep(70)
    assert world.ids("") == ["own"]
    assert world.ids("billing")[:2] == ["billing", "first"] and len(world.ids("billing")) == 3
    assert len(world.ids("crm")) == 2
    assert set(world.urls) == {
        "https://origin.example/_tocsin/callback", "https://billing.example/in/_tocsin/callback",
        "https://crm.example/hooks",
    }  # fmt: skip
    record = await world.jobs.schedules.get("daily")
    assert record is not None and record.origin == "billing"


@in_world
async def test_an_unknown_name_is_refused_at_the_call_with_the_names_there_are(world: World) -> None:
    with pytest.raises(
        InvalidInputError, match=r"no origin 'biling' \(do you mean billing\?\): choose from billing, crm"
    ):
        await world.jobs.run_after(0, "work:run", origin="biling")
    with pytest.raises(InvalidInputError, match=r"then\[0\]: there is no origin 'x'"):
        await world.jobs.run_after(0, "work:run", then=[Job("a:b", options={"origin": "x"})])
    with pytest.raises(InvalidInputError, match="there is no origin 'x'"):
        await world.jobs.schedules.put("daily", "work:daily", every=60, origin="x")
    with pytest.raises(InvalidInputError, match="one of origin and queue"):
        await world.jobs.run_after(0, "work:run", origin="billing", queue="q")
    for wrong in ("url", "a b", "@billing", "", 7):
        with pytest.raises(InvalidInputError, match=r"there is no origin|origin must be the name of one of the host's"):
            await world.jobs.run_after(0, "work:run", origin=wrong)  # type: ignore[arg-type]
    assert not (await world.jobs.list()).records


@in_world
async def test_an_origin_that_is_away_delays_nobody_else_and_its_jobs_are_neither_charged_nor_rewritten(
    world: World,
) -> None:
    world.away = {"billing"}
    for n in range(40):
        await world.jobs.run_after(0, "work:run", id=f"b{n:02}", origin="billing", pool="shared", max_concurrency=2)
    await world.sleep(20)
    assert "CIRCUIT_OPEN" in await why_codes(world, "b30")
    said = next(one.message for one in await world.jobs.why("b30") if one.code == "CIRCUIT_OPEN")
    assert "billing (https://billing.example/in) cannot be reached" in said
    [reason] = (await world.jobs.status()).reasons
    assert reason.code == "ORIGIN_UNREACHABLE" and "billing" in reason.message

    began = world.now
    for n in range(20):
        await world.jobs.run_after(0, "work:run", id=f"o{n:02}", pool="shared")
        await world.jobs.run_after(0, "work:run", id=f"c{n:02}", origin="crm")
    await world.sleep(1)
    assert len(world.ids("")) == len(world.ids("crm")) == 20
    assert world.now - began < 1_500
    assert "CIRCUIT_OPEN" in await why_codes(world, "b30")

    world.away = set()
    await world.sleep(60)
    assert len(world.ids("billing")) == 40 and not (await world.jobs.status()).reasons
    assert not (await world.jobs.list()).records


@in_world
async def test_a_slow_origin_has_lanes_and_permits_of_its_own(world: World) -> None:
    world.slow = {"billing": 30.0}
    for n in range(10):
        await world.jobs.run_after(0, "work:run", id=f"b{n}", origin="billing")
    await world.sleep(1)
    assert world.running["billing"] == 4, "as many as this origin may have in flight"
    assert "HOST_FULL" in await why_codes(world, "b9")
    for n in range(100):
        await world.jobs.run_after(0, "work:run", id=f"o{n}")
    await world.sleep(1)
    assert len(world.ids("")) == 100
    await world.sleep(100)
    assert len(world.ids("billing")) == 10 and world.most["billing"] == 4


@in_world
async def test_jobs_of_one_pool_start_in_their_order_whichever_origin_they_go_to(world: World) -> None:
    world.slow = dict.fromkeys(HOSTS, 1.0)
    names = ["", "billing", "crm"]
    for n in range(12):
        named: dict[str, Any] = {"origin": names[n % 3]} if names[n % 3] else {}
        await world.jobs.run_at(world.now + n, "work:run", id=f"j{n:02}", pool="one", **named)
    await world.sleep(20)
    history = [(await world.jobs.history(f"j{n:02}"))[0].started for n in range(12)]
    assert history == sorted(history) and len(set(history)) == 12


@in_world
async def test_nothing_goes_to_an_origin_that_cools_and_why_says_until_when(world: World) -> None:
    lanes = world.host._service.inflight("t").lanes
    until = world.now + 90_000
    lanes.cool([("billing", 90_000), ("billing", 30_000)])  # the second one changes nothing
    await world.jobs.run_after(0, "work:run", id="b", origin="billing")
    await world.jobs.run_after(0, "work:run", id="o")
    await world.sleep(80)
    assert world.ids("") == ["o"] and world.ids("billing") == []
    [why] = await world.jobs.why("b")
    assert (why.code, why.at) == ("ORIGIN_COOLING", until) and "origin billing asked for no callbacks" in why.message
    status = await world.jobs.status()
    assert [one.code for one in status.reasons] == ["ORIGIN_COOLING"] and status.health == "amber"
    await world.sleep(9)
    assert world.ids("billing") == []
    await world.sleep(1.2)
    assert world.ids("billing") == ["b"] and not (await world.jobs.status()).reasons


@in_world
async def test_one_busy_answer_cools_the_origin_of_a_pool_that_is_set_so_and_no_other(world: World) -> None:
    await world.jobs.set_pool("mail", max_concurrency=1, cool_on_retry_after="origin")
    world.busy = {"billing": "120"}
    for n in range(50):
        await world.jobs.run_after(0, "work:run", id=f"b{n}", origin="billing", pool="mail")
        await world.jobs.run_after(0, "work:run", id=f"c{n}", origin="crm", pool="mail")
        await world.jobs.run_after(0, "work:run", id=f"o{n}", origin="billing")
    await world.sleep(100)
    assert len(world.ids("billing")) <= 3, "those that were on their way"
    assert len(world.ids("crm")) == 50
    assert "ORIGIN_COOLING" in await why_codes(world, "o49") and "ORIGIN_COOLING" in await why_codes(world, "b49")
    world.busy = {}
    await world.sleep(400)
    assert not (await world.jobs.list()).records


def test_a_host_may_let_jobs_without_a_pool_cool_their_origin() -> None:
    async def main(random: Random) -> None:
        world = World(random)
        for cools in ("none", "origin"):
            world.receivers["crm"].deliveries.clear()
            world.busy = {"crm": "60"}
            await opened(world, cool_on_retry_after=cools)
            await world.jobs.run_after(0, "work:run", origin="crm")
            await world.sleep(1)
            for _ in range(20):
                await world.jobs.run_after(0, "work:run", origin="crm")
            await world.sleep(1)
            assert len(world.ids("crm")) == (21 if cools == "none" else 1)
            world.busy = {}
            await world.sleep(300)
            assert not (await world.jobs.list()).records
            await world.close()

    simulate(11, main)
    with pytest.raises(SettingsError, match="cool_on_retry_after must be none or origin, not 'pool'"):
        ActorHost.open("memory:", cool_on_retry_after="pool")


@in_world
async def test_status_and_measures_tell_how_each_origin_is(world: World) -> None:
    world.away, world.slow = {"billing"}, {"crm": 30.0}
    for n in range(6):
        await world.jobs.run_after(0, "work:run", id=f"b{n}", origin="billing")
    await world.jobs.run_after(0, "work:run", origin="crm")
    await world.sleep(15)
    billing, crm = (await world.jobs.status()).origins
    assert (billing.name, billing.state, billing.in_flight) == ("billing", "away", 0)
    assert billing.since is not None and "cannot be reached" in (billing.message or "")
    assert (crm.name, crm.state, crm.in_flight, crm.limit) == ("crm", "ready", 1, 64)
    here = (await world.host.measures()).schedulers
    assert here is not None
    assert here.circuit_is_open == {"": False, "billing": True, "crm": False}
    assert (here.permits["billing"], here.permits["crm"], here.permits_in_use["crm"]) == (4, 256, 1)
    world.host._service.inflight("t").lanes.cool([("crm", 60_000)])
    _, crm = (await world.jobs.status()).origins
    assert (crm.state, crm.until) == ("cooling", world.now + 60_000)
    world.away = set()
    await world.sleep(300)


@in_world
async def test_jobs_of_an_origin_that_the_next_host_has_not_wait_until_one_has_it(world: World) -> None:
    await world.jobs.run_after(60, "work:run", id="b", origin="billing")
    await world.close()
    await opened(world, {"crm": ORIGINS["crm"]})
    await world.sleep(600)
    assert await why_codes(world, "b") == ["ORIGIN_NOT_CONFIGURED"]
    record = await world.jobs.get("b")
    assert record is not None and (record.attempt, record.origin, record.state) == (0, "billing", "waiting")
    assert [one.code for one in (await world.jobs.status()).reasons] == ["ORIGIN_NOT_CONFIGURED"]
    assert not world.host._service.inflight("t").lanes.busy, "it does not stand in line, so memory is not held for it"
    await world.close()
    await opened(world)
    await world.sleep(1)
    assert world.ids("billing") == ["b"]


@in_world
async def test_an_advance_of_a_test_clock_says_that_it_waits_for_an_origin_that_is_not_there(world: World) -> None:
    jobs = world.host.scheduler("t")
    await jobs.clock.create(world.now)
    await jobs.run_after("1h", "work:run", id="b", origin="billing")
    await world.close()
    await opened(world, {"crm": ORIGINS["crm"]})
    jobs = world.host.scheduler("t")
    advance = asyncio.ensure_future(jobs.clock.advance("2h"))
    await world.sleep(5)
    clock = (await jobs.status()).clock
    assert clock is not None and clock.advancing and "this host has no origin 'billing'" in (clock.waits_for or "")
    await jobs.cancel("b")
    await world.sleep(1)
    assert advance.done()


@in_world
async def test_a_store_gets_its_layout_with_the_first_job_that_names_an_origin(world: World) -> None:
    view, key = world.host.runtime.provider.view("scheduler/t"), b"meta/layout"
    following: Any = [Job("a:b", options={"origin": "crm"})]
    await world.jobs.run_after(60, "work:run")
    assert (await view.get([key]))[key] == b"3"
    await world.jobs.run_after(60, "work:run", then=following)
    assert (await view.get([key]))[key] == b"4", "what follows names one"
    other = world.host.runtime.provider.view("scheduler/o")
    await world.host.scheduler("o").schedules.put("daily", "work:daily", every=60, then=following)
    assert (await other.get([key]))[key] == b"4"


@in_world
async def test_a_host_that_is_killed_sends_what_waits_to_the_same_origins(world: World) -> None:
    world.slow = {"billing": 5.0}
    for n in range(12):
        await world.jobs.run_after(0, "work:run", id=f"b{n}", origin="billing")
        await world.jobs.run_after(0, "work:run", id=f"o{n}")
    await world.sleep(1)
    await world.crash()
    await opened(world)
    await world.sleep(200)
    assert set(world.ids("billing")) == {f"b{n}" for n in range(12)}
    assert set(world.ids("")) == {f"o{n}" for n in range(12)}
    assert not (await world.jobs.list()).records


@in_world
async def test_a_job_that_must_run_alone_runs_beside_no_callback_to_any_origin(world: World) -> None:
    world.slow = dict.fromkeys(HOSTS, 30.0)
    await world.jobs.run_after(0, "work:bad", id="bad", origin="billing")
    for _ in range(4):  # four hosts are lost with it
        await world.sleep(5)
        await world.crash()
        await opened(world)
        await world.sleep(75)
    record = await world.jobs.get("bad")
    assert record is not None and record.losses == 4
    world.slow, world.urls[:], beside = dict.fromkeys(HOSTS, 0.5), [], list[tuple[int, int]]()
    began = world.now
    for n in range(400):
        await world.jobs.run_at(began + n * 100, "work:run", origin=("billing", "crm")[n % 2])
        await world.jobs.run_at(began + n * 100, "work:run")
    while await world.jobs.get("bad") is not None:
        record = await world.jobs.get("bad")
        if record is not None and record.state == "running":
            beside.append((world.running.total(), world.running["billing"]))
        await world.sleep(0.1)
        assert world.now - began < 60_000
    assert beside and set(beside) <= {(1, 1), (0, 0)}
    await world.sleep(60)
    assert not (await world.jobs.list()).records


def test_origins_are_checked_when_the_host_is_made() -> None:
    def made(**origins: Any) -> None:
        ActorHost.open("memory:", origin="https://a.example", secrets=[SECRET], origins=origins)

    with pytest.raises(SettingsError, match=r"origins\['b'\]: callbacks would go out unsigned"):
        made(b=Origin(url="https://b.example"))
    with pytest.raises(SettingsError, match=r"origins\['b'\] must be an Origin, not"):
        made(b="https://b.example")
    with pytest.raises(SettingsError, match="the name 'url' is the system's"):
        made(url=Origin(url="https://b.example", secrets=[OTHER]))
    with pytest.raises(SettingsError, match=r"max_in_flight must be a whole number 1\.\.10000, not 0"):
        made(b=Origin(url="https://b.example", secrets=[OTHER], max_in_flight=0))
    with pytest.raises(SettingsError, match=r"origins\['b'\]: .*http or https"):
        made(b=Origin(url="ftp://b.example", secrets=[OTHER]))
    assert OTHER not in repr(Origin(url="https://b.example", secrets=[OTHER]))


def test_the_name_of_a_line_tells_the_origin() -> None:
    assert (origin_in("@billing"), origin_in("~~@billing#x"), origin_in("billing"), origin_in("")) == (
        "billing", "billing", "", "",
    )  # fmt: skip


@on_simulated_host()
async def test_a_host_without_named_origins_says_so(sim: SimulatedHost) -> None:
    with pytest.raises(InvalidInputError, match="origin 'billing': this host has no named origins"):
        await sim.jobs.run_after(0, "work:run", origin="billing")
