"""The door on a Unix socket: who has its descriptors, on the loop that servers use."""

from __future__ import annotations

import asyncio
import gc
import socket
from pathlib import Path

import pytest
import uvloop

from tocsin.actors.sharing.door import DoorClosed, MayEnter
from tocsin.actors.sharing.unix_door import UnixDoor
from tocsin.storage.sqlite.provider import SQLiteProvider


class Ended(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_link_s_descriptor_belongs_to_its_transport_alone(new_loop: object, tmp_path: Path) -> None:
    """With a second owner it would be closed twice; by then it may be the number of another file or connection."""

    async def main() -> None:
        provider = SQLiteProvider(tmp_path / "jobs.db")
        door = UnixDoor(provider)
        door.prepare("0" * 48)
        await provider.start()
        accepted: list[Ended] = []
        let_in = asyncio.Event()

        def accept(may_enter: MayEnter) -> Ended:
            accepted.append(Ended())
            asyncio.get_running_loop().call_soon(let_in.set)
            return accepted[-1]

        await door.open(accept)
        link, holder = await door.enter(Ended)
        assert link.transport is not None
        number = link.transport.get_extra_info("socket").fileno()
        owners = sum(isinstance(one, socket.socket) and one.fileno() == number for one in gc.get_objects())

        async with asyncio.timeout(5):
            await let_in.wait()
        accepted[0].transport.abort()  # type: ignore[union-attr]
        async with asyncio.timeout(5):
            await link.lost.wait()
        holder.forget()
        await door.close()
        with pytest.raises(DoorClosed):
            await door.enter(Ended)
        await provider.stop()
        assert owners == (0 if new_loop is uvloop.new_event_loop else 1)

    with asyncio.Runner(loop_factory=new_loop) as runner:  # type: ignore[arg-type]
        runner.run(main())
