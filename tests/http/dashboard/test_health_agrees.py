"""Health is one thing, wherever it is looked at: in `/status`, at `/readyz`, and at the head of every page."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tests.http.http_client import client_of
from tocsin.actors.http.dashboard.page import Page
from tocsin.actors.http.dashboard.pages import PLACES
from tocsin.dispatch.transport import Answer

PAGES = [one.path for one in PLACES if isinstance(one, Page) and "{" not in one.path]
LOOK_S = 6
"""After so long the probe looks again."""
States = Callable[[SimulatedHost, Any], Awaitable[None]]


async def looked(client: httpx.AsyncClient, place: str) -> tuple[str, set[str], set[str]]:
    """Return the health, its codes, and the codes of the probe; pages say the same."""
    status = (await client.get(f"{place}/status")).json()
    ready = (await client.get("/readyz")).json()
    for path in PAGES:
        page = (await client.get(f"{place}/ui{path}")).text
        head = re.search(r'<span id="health"[^>]*>\s*<a class="health (\w+)"', page)
        assert head is not None and head[1] == status["health"], path
    overview = (await client.get(f"{place}/ui")).text
    codes = {one["code"] for one in status.get("reasons", ())}
    assert set(re.findall(r"<code>([A-Z_]+)</code></span></li>", overview)) == codes
    assert f'<span class="health {status["health"]}"' in (await client.get(f"{place}/ui/instances")).text
    return status["health"], codes, {ready["error"]["code"]} if "error" in ready else set(ready.get("reasons", ()))


async def lose_the_origin(sim: SimulatedHost, _: Any) -> None:
    sim.down = True
    for _ in range(10):
        await sim.jobs.run_after(0, "work:run")
    await sim.sleep(60)


async def find_the_origin(sim: SimulatedHost, _: Any) -> None:
    sim.down = False
    await sim.sleep(120)


async def fill_the_store(sim: SimulatedHost, _: Any) -> None:
    sim.disk_full(True)


async def make_room(sim: SimulatedHost, _: Any) -> None:
    sim.disk_full(False)


async def crowd_in(sim: SimulatedHost, app: Any) -> None:
    app.state.crowd.note("CONNECTIONS_FULL", "512 connections are open")
    app.state.crowd.note("BODIES_FULL", "unfinished requests hold too much")


async def wait_a_while(sim: SimulatedHost, _: Any) -> None:
    await sim.sleep(11)


async def begin_to_move(sim: SimulatedHost, _: Any) -> None:
    await sim.host.seal("t", move="m", to="elsewhere")


async def move(sim: SimulatedHost, _: Any) -> None:
    await sim.host.seal("t", move="m", to="elsewhere", closed=True)


async def stay(sim: SimulatedHost, _: Any) -> None:
    await sim.host.unseal("t", move="m")


async def damage(sim: SimulatedHost, _: Any) -> None:
    sim.disk.maps["scheduler/t"].apply({b"bad/job/x": b"\xc1"})


async def clean(sim: SimulatedHost, _: Any) -> None:
    sim.disk.maps["scheduler/t"].apply({b"bad/job/x": None})


async def die(sim: SimulatedHost, _: Any) -> None:
    sim.reply = lambda _: Answer(410, {}, b"")
    for n in range(3):
        await sim.jobs.run_after(0, "work:run", id=f"d{n}")
    await sim.sleep(5)


async def bury(sim: SimulatedHost, _: Any) -> None:
    for n in range(3):
        await sim.jobs.dead_cancel(f"d{n}")
    sim.reply = lambda _: Answer(200, {}, b"")


async def forget_a_queue(sim: SimulatedHost, _: Any) -> None:
    await sim.jobs.run_after(0, "work:run", queue="q", id="q")
    await sim.sleep(3_700)


async def serve_the_queue(sim: SimulatedHost, _: Any) -> None:
    assert await sim.jobs.claim("q")


STATES: dict[str, tuple[States, States, str, set[str]]] = {
    "origin": (lose_the_origin, find_the_origin, "red", {"ORIGIN_UNREACHABLE"}),
    "full": (fill_the_store, make_room, "red", {"STORE_FULL"}),
    "crowd": (crowd_in, wait_a_while, "amber", {"CONNECTIONS_FULL", "BODIES_FULL"}),
    "moving": (begin_to_move, stay, "amber", {"INSTANCE_MOVING"}),
    "moved": (move, stay, "amber", {"INSTANCE_MOVED"}),
    "damage": (damage, clean, "amber", {"DAMAGED_ROWS"}),
    "dead": (die, bury, "amber", {"DEAD_LETTERS"}),
    "queue": (forget_a_queue, serve_the_queue, "amber", {"QUEUE_LATE"}),
}


@pytest.mark.parametrize("state", STATES)
def test_health_turns_and_turns_back_alike_wherever_it_is_seen(state: str) -> None:
    begin, end, level, codes = STATES[state]

    @on_simulated_host(health_limits={"dead_letters": 3})
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.run_after("30d", "work:run", id="later")
        app = sim.host.asgi(insecure=True)
        async with client_of(app) as client:
            assert await looked(client, "/i/t") == ("green", set(), set())
            await sim.sleep(LOOK_S)
            await begin(sim, app)
            assert await looked(client, "/i/t") == (level, codes, codes)
            await end(sim, app)
            await sim.sleep(LOOK_S)
            assert await looked(client, "/i/t") == ("green", set(), set())

    run()
