"""An origin that was away and is back: health says that it is reached before it has answered."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, after, on_simulated_host
from tocsin.dispatch.builtin_transport import BuiltinTransport
from tocsin.dispatch.transport import NeverConnected


async def told(sim: SimulatedHost) -> list[str]:
    return [one.message for one in (await sim.jobs.status()).reasons if one.code == "ORIGIN_UNREACHABLE"]


@on_simulated_host()
async def test_a_slow_origin_that_is_back_is_not_called_away(sim: SimulatedHost) -> None:
    sim.down = True
    for number in range(6):
        await sim.jobs.run_after(0, "work:run", id=f"job-{number}")
    await sim.sleep(10)
    (away,) = await told(sim)
    assert "cannot be reached: never connected: refused" in away

    sim.down, sim.reply = False, lambda one: after(40)
    await sim.sleep(20)
    (back,) = await told(sim)
    assert "is reached again, and its first answer is waited for since " in back and "cannot be reached" not in back
    assert "callbacks wait, and one every 5 s is tried" in back

    sim.down = True
    await sim.jobs.run_after(0, "work:run")
    await sim.sleep(10)
    (away_again,) = await told(sim)
    assert "cannot be reached" in away_again

    sim.down = False
    await sim.sleep(60)
    assert await told(sim) == []


@pytest.mark.anyio
async def test_the_transport_tells_of_connections_that_it_makes_and_of_no_others() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    server, made = await asyncio.start_server(answer, "127.0.0.1", 0), list[int]()
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    transport = BuiltinTransport()
    transport.on_connected = lambda: made.append(1)
    for _ in range(2):
        assert (await transport.post(url, {}, b"", connect_timeout=5, timeout=5, max_body=1)).status == 204
    assert made == [1]
    await transport.aclose()
    server.close()

    transport.reopen()
    with pytest.raises(NeverConnected):
        await transport.post(url, {}, b"", connect_timeout=5, timeout=5, max_body=1)
    assert made == [1]
    await transport.aclose()
