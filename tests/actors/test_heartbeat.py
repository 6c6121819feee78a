"""The sign of life: once a minute while all is well, silent otherwise, and in nobody's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.heartbeat import check_heartbeat
from tocsin.dispatch.transport import Answer, NeverConnected
from tocsin.errors import SettingsError, StoreUnavailable
from tocsin.storage.memory import MemoryProvider

URL = "https://hc.example/ping/5f3c-top-secret?token=hidden"


class Switch:
    """A `Transport` to a dead man's switch: notes when a beat came."""

    def __init__(self) -> None:
        self.beats: list[float] = []
        self.posts: list[tuple[str, Mapping[str, str], bytes, Mapping[str, Any]]] = []
        self.status = 200
        self.away = self.stuck = self.closed = False

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **bounds: Any) -> Answer:
        self.beats.append(asyncio.get_running_loop().time())
        self.posts.append((url, headers, body, bounds))
        if self.away:
            raise NeverConnected(f"could not connect to {url}")
        if self.stuck:
            await asyncio.sleep(bounds["timeout"])
            raise NeverConnected("too late")
        return Answer(self.status, {}, b"")

    async def aclose(self) -> None:
        self.closed = True


def beating(test: Any) -> Any:
    """Run a test with a host that sends heartbeats to a switch."""

    def run(caplog: pytest.LogCaptureFixture) -> None:
        switch = Switch()

        @on_simulated_host(heartbeat_url=URL, heartbeat_transport=switch)
        async def inside(sim: SimulatedHost) -> None:
            await test(sim, switch)

        with caplog.at_level(logging.DEBUG):
            inside()
        assert switch.closed
        assert "secret" not in caplog.text and "hidden" not in caplog.text

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@beating
async def test_it_beats_once_a_minute(sim: SimulatedHost, switch: Switch) -> None:
    await sim.sleep(305)

    assert [round(at) for at in switch.beats] == [0, 60, 120, 180, 240, 300]
    [(url, headers, body, bounds)] = switch.posts[:1]
    assert (url, body) == (URL, b"") and bounds["timeout"] <= 10 and bounds["connect_timeout"] <= 10
    assert not {"authorization", "webhook-signature"} & set(headers)


@beating
async def test_it_is_silent_while_the_disk_is_full(sim: SimulatedHost, switch: Switch) -> None:
    await sim.sleep(30)
    provider = sim.host.runtime.provider
    assert isinstance(provider, MemoryProvider)
    provider.full = True
    await sim.sleep(200)
    assert len(switch.beats) == 1
    provider.full = False
    await sim.sleep(60)

    assert len(switch.beats) == 2


@beating
async def test_it_is_silent_while_the_store_takes_no_row(sim: SimulatedHost, switch: Switch) -> None:
    provider: Any = sim.host.runtime.provider
    await sim.sleep(30)
    write = provider.combiner._write

    async def refuse(writes: Any) -> None:
        raise StoreUnavailable("as the test wanted")

    async def hang(writes: Any) -> None:
        await asyncio.sleep(25)
        await write(writes)

    provider.combiner._write = refuse
    await sim.sleep(60)
    provider.combiner._write = hang
    await sim.sleep(60)
    assert len(switch.beats) == 1
    provider.combiner._write = write
    await sim.sleep(90)

    assert len(switch.beats) == 2


@beating
async def test_it_is_silent_while_the_origin_cannot_be_reached(sim: SimulatedHost, switch: Switch) -> None:
    """Health is red then."""
    await sim.sleep(30)
    sim.down = True
    for n in range(6):
        await sim.jobs.run_after(0, "work:run", id=f"j{n}")
    await sim.sleep(100)
    assert (await sim.jobs.status()).health == "red" and len(switch.beats) == 1
    sim.down = False
    await sim.sleep(65)

    assert len(switch.beats) == 2


@beating
async def test_it_is_silent_while_an_alarm_fails(sim: SimulatedHost, switch: Switch) -> None:
    await sim.jobs.run_after(50, "work:run")
    with pytest.MonkeyPatch.context() as patch:

        async def broken(*_: Any, **__: Any) -> None:
            raise RuntimeError("as the test wanted")

        patch.setattr("tocsin.actors.scheduler.actor.scheduler_actor.SchedulerActor.alarm", broken)
        await sim.sleep(100)
        assert len(switch.beats) == 1
    await sim.sleep(60)

    assert len(switch.beats) == 2


@beating
async def test_a_switch_that_is_away_or_refuses_or_hangs_holds_up_nothing(sim: SimulatedHost, switch: Switch) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=10)
    for fault in ("away", "stuck"):
        setattr(switch, fault, True)
        await sim.sleep(61)
        setattr(switch, fault, False)
    switch.status = 500
    await sim.sleep(61)

    assert len(switch.beats) == 4 and len(sim.deliveries) == 18
    switch.stuck = True
    await sim.sleep(58)
    before = sim.now
    await sim.close()
    assert sim.now - before < 200, "a stop does not wait for it"
    await sim.open()


def test_a_url_that_cannot_be_is_refused_without_being_shown() -> None:
    for wrong in ("ftp://hc.example/secret", "hc.example/secret", "https:///secret", "https://a b/secret", 7, "",
                  "https://user:secret@hc.example/x", "https://hc.example:99999/secret"):  # fmt: skip
        with pytest.raises(SettingsError, match="heartbeat_url") as refused:
            ActorHost.open("memory:", heartbeat_url=wrong)
        assert "secret" not in str(refused.value)
    assert check_heartbeat("http://127.0.0.1:9/x?y=1") == "http://127.0.0.1:9/x?y=1"
