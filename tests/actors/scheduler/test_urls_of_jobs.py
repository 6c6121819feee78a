"""Jobs that name a URL of the host's list: where they go, who signs them, what is refused, and whom they delay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SECRET, SimulatedHost, why_codes
from tests.in_process_transport import InProcessTransport
from tocsin import AllowedUrls, Job, Retry
from tocsin.actors.testing import simulate
from tocsin.dispatch.testing import FakeReceiver
from tocsin.dispatch.transport import Answer, NeverConnected
from tocsin.errors import InvalidInputError, SettingsError

OTHER = "whsec_" + "YW5vdGhlciBzZWNyZXQsIG9mIFVSTHMgb2Ygam9icyA6LSk="
LIST = ["https://*.customer.example/in/", "https://hooks.example"]
URL = "https://acme.customer.example/in/paid?v=2"


class World(SimulatedHost):
    """A host that calls URLs of jobs back, whose receivers may be away, or slow, or fail."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.away, self.failing, self.slow_s = False, False, 0.0
        self.urls: list[str] = []
        self.running = self.most = 0
        self.others = FakeReceiver([OTHER], now_ms=self.clock.now_ms)

    async def start(self, entries: Sequence[str] = LIST, **more: Any) -> None:
        allowed = AllowedUrls(entries, secrets=[OTHER], transport=Outside(self), **more)
        await self.open(**({"allow_urls": allowed} if entries else {}))

    def sent(self) -> list[str]:
        return [one.id for one in self.others.deliveries]


class Outside(InProcessTransport):
    """What is behind the URLs."""

    def __init__(self, world: World) -> None:
        super().__init__(world.others)
        self._world = world

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **bounds: Any) -> Answer:
        world = self._world
        if world.away:
            raise NeverConnected("refused: nothing accepts connections")
        world.urls.append(url)
        world.running += 1
        world.most = max(world.most, world.running)
        await asyncio.sleep(world.slow_s)
        world.running -= 1
        answer = await super().post(url, headers, body)
        return Answer(500, {}, b"broken") if world.failing else answer


def in_world(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def main(random: Random) -> None:
            world = World(random)
            await world.start()
            await test(world)
            await world.close()
            assert await world.faults() == []

        simulate(101, main)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_world
async def test_a_job_goes_to_its_url_signed_with_the_secrets_of_the_list_only(world: World) -> None:
    await world.jobs.run_after(0, "work:own", id="own")
    then = [Job("work:next", options={"url": "https://hooks.example/next"})]
    await world.jobs.run_after(60, "work:run", id="job", url="HTTPS://Acme.customer.example/in/paid?v=2", then=then)
    await world.jobs.schedules.put("daily", "work:daily", every=3600, url="https://hooks.example/daily")
    record = await world.jobs.get("job")
    assert record is not None and (record.url, record.origin) == (URL, None)
    assert (record.then[0].url, record.then[0].origin) == ("https://hooks.example/next", None)
    await world.sleep(3700)

    assert world.urls == [URL, "https://hooks.example/next", "https://hooks.example/daily"]
    assert [one.id for one in world.deliveries] == ["own"]
    assert world.others.rejected == world.receiver.rejected == []
    schedule = await world.jobs.schedules.get("daily")
    assert schedule is not None and (schedule.url, schedule.origin) == ("https://hooks.example/daily", None)


@in_world
async def test_a_url_that_the_list_has_not_is_refused_at_the_call(world: World) -> None:
    jobs, elsewhere = world.jobs, "https://evil.example/in/"
    with pytest.raises(InvalidInputError, match=r"url: https://evil\.example/in/ is not on the host's list"):
        await jobs.run_after(0, "work:run", url=elsewhere)
    with pytest.raises(InvalidInputError, match=r"then\[0\].*is not on the host's list"):
        await jobs.run_after(0, "work:run", then=[Job("a:b", options={"url": elsewhere})])
    with pytest.raises(InvalidInputError, match="is not on the host's list"):
        await jobs.schedules.put("daily", "work:daily", every=60, url=elsewhere)
    with pytest.raises(InvalidInputError, match="give one of url and queue"):
        await jobs.run_after(0, "work:run", url=URL, queue="q")
    with pytest.raises(InvalidInputError, match="give one of url and origin"):
        await jobs.run_after(0, "work:run", url=URL, origin="url")
    with pytest.raises(InvalidInputError, match=r"no named origins|no origin 'url'|name of one of the host's origins"):
        await jobs.run_after(0, "work:run", origin="url")
    for wrong in ("", 7, "http://127.1/", "https://acme.customer.example/in/../x"):
        with pytest.raises(InvalidInputError, match="url"):
            await jobs.run_after(0, "work:run", url=wrong)  # type: ignore[arg-type]
    assert not (await jobs.list()).records


@in_world
async def test_a_job_whose_url_left_the_list_is_parked_unsent_and_goes_when_it_is_back(world: World) -> None:
    await world.jobs.run_after(60, "work:run", id="job", url=URL)
    await world.close()
    await world.start(["https://hooks.example"])
    await world.sleep(120)

    [letter] = (await world.jobs.dead()).records
    assert (letter.id, letter.reason) == ("job", "blocked")
    assert letter.last_error is not None
    assert "https://acme.customer.example is not on the host's list of URLs" in letter.last_error.message
    assert "paid" not in letter.last_error.message, "a path may be secret"
    await world.close()
    await world.start()
    await world.jobs.dead_retry("job")
    await world.sleep(1)
    assert world.sent() == ["job"]


@in_world
async def test_a_host_without_any_list_refuses_them_and_lets_those_that_are_there_wait(world: World) -> None:
    await world.jobs.run_after(60, "work:run", id="job", url=URL)
    await world.close()
    await world.start([])
    with pytest.raises(InvalidInputError, match=r"this host calls no URLs of jobs: open it with allow_urls"):
        await world.jobs.run_after(0, "work:run", url=URL)
    await world.sleep(300)
    assert "ORIGIN_NOT_CONFIGURED" in await why_codes(world, "job")
    record = await world.jobs.get("job")
    assert record is not None and (record.attempts, record.state) == (0, "waiting")
    await world.close()
    await world.start()
    await world.sleep(1)
    assert world.sent() == ["job"]


@in_world
async def test_one_that_is_not_reached_is_charged_and_opens_no_circuit(world: World) -> None:
    world.away = True
    for n in range(10):
        await world.jobs.run_after(0, "work:run", id=f"job{n}", url=URL, retry=Retry(max_retries=1, base_ms=1_000))
    await world.sleep(0.5)
    attempts = await world.jobs.history("job0")
    assert [(one.outcome, one.error) for one in attempts] == [
        ("failed", "never connected: refused: nothing accepts connections")
    ]
    assert not world.host.health()
    await world.sleep(5)
    assert {one.id for one in (await world.jobs.dead()).records} == {f"job{n}" for n in range(10)}
    world.away = False
    await world.jobs.run_after(0, "work:run", id="next", url=URL)
    await world.sleep(0.1)
    assert world.sent() == ["next"], "no circuit holds it back"


@in_world
async def test_failures_of_others_receivers_are_not_the_hosts(world: World) -> None:
    world.failing = True
    for n in range(40):
        await world.jobs.run_after(0, "work:run", id=f"job{n}", url=URL)
    await world.sleep(5)
    assert len(world.urls) == 40
    assert not world.host.health()


def test_slow_receivers_fill_their_own_permits_and_delay_nothing_else() -> None:
    async def main(random: Random) -> None:
        world = World(random)
        await world.start(max_in_flight=3)
        world.slow_s = 30
        for n in range(10):
            await world.jobs.run_after(0, "work:run", id=f"slow{n}", url=URL)
        await world.jobs.run_after(1, "work:own", id="own")
        await world.sleep(2)
        assert [one.id for one in world.deliveries] == ["own"]
        assert (world.running, await why_codes(world, "slow9")) == (3, ["HOST_FULL"])
        await world.sleep(200)
        assert len(world.sent()) == 10 and world.most == 3
        await world.close()

    simulate(7, main)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"allow_urls": LIST}, "allow_urls: callbacks would go out unsigned"),
        ({"allow_urls": LIST, "insecure": True}, "allow_urls: insecure is for loopback origins only"),
        ({"allow_urls": "https://hooks.example"}, "allow_urls must be a list of URLs"),
        ({"allow_urls": ["https://*/"]}, "allow_urls"),
        ({"allow_urls": AllowedUrls(LIST, networks=["10/8"]), "secrets": [SECRET]}, "url_networks must hold networks"),
        ({"allow_urls": AllowedUrls(LIST, max_in_flight=0), "secrets": [SECRET]}, "max_in_flight must be 1..10000"),
        ({"allow_urls": AllowedUrls(LIST, secrets=["short"])}, "a secret has 5 bytes"),
        ({"allow_urls": AllowedUrls(LIST, transport="curl"), "secrets": [SECRET]}, "transport must be one of"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_when_the_host_is_opened(options: dict[str, Any], words: str) -> None:
    from tocsin import ActorHost

    with pytest.raises(SettingsError, match=words.replace("(", r"\(")):
        ActorHost.open("memory:", **options)


@in_world
async def test_what_one_receiver_asks_for_cools_none_of_the_others(world: World) -> None:
    world.host._service.origins.permits_of("url").cool(world.now + 60_000)
    await world.jobs.run_after(0, "work:run", id="job", url=URL)
    await world.sleep(0.1)
    assert world.sent() == ["job"]
