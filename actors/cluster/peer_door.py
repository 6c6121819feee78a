"""The end of links at the host that is called: it lets in hosts that know the store's secret, and does what they ask
for actors that are here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import msgspec

from tocsin.actors.cluster.routes import is_elsewhere, subject
from tocsin.actors.cluster.seals import PEER_VERSION, Challenge, PeerHello, PeerWelcome, Session, is_proof
from tocsin.actors.sharing.frames import MAX_FRAME, BrokenLink, Kind
from tocsin.actors.sharing.holder import Holder, HolderEnd, Served
from tocsin.actors.sharing.operations import Asked, Operation
from tocsin.actors.sharing.remote_port import run_once
from tocsin.errors import StoreLocked
from tocsin.storage.shared import SharedProvider

_hello: Final = msgspec.json.Decoder(PeerHello)


class PeerDoor(Holder):
    """Serves other hosts of the store. It never sends them on: what is not here is looked for anew by who asks."""

    def __init__(self, served: Served, provider: SharedProvider, random: Random, pid: int) -> None:
        super().__init__(served, "", {}, pid)
        self.provider, self.random = provider, random

    def accept(self, may_enter: Callable[[asyncio.BaseTransport], bool]) -> PeerEnd:
        return PeerEnd(self, may_enter)

    def check_here(self, actor: str | None) -> None:
        """StoreLocked if this host may not answer for an actor, also not from memory."""
        if actor is not None and not self.provider.locate(actor).here:
            raise StoreLocked(f"{actor} is not at this host")


class PeerEnd(HolderEnd):
    """One host's link, as the host sees it that was called."""

    def __init__(self, door: PeerDoor, may_enter: Callable[[asyncio.BaseTransport], bool]) -> None:
        super().__init__(door, may_enter)
        self._door = door
        nonce = f"{door.random.getrandbits(128):032x}"
        self._challenge = Challenge(PEER_VERSION, door.provider.owner, nonce)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.send(Kind.CHALLENGE, 0, msgspec.json.encode(self._challenge))

    def _greet(self, kind: int, body: bytes) -> None:
        try:
            hello = _hello.decode(body) if kind == Kind.HELLO else None
        except msgspec.MsgspecError:
            hello = None
        if hello is None:
            raise BrokenLink("a stranger did not say who it is")
        if hello.version != PEER_VERSION:
            return self._turn_away(f"this host speaks version {PEER_VERSION}, and yours {hello.version}")
        session = Session(self._door.provider.secret, self._challenge, hello.host, hello.nonce)
        if not is_proof(hello.proof, session.proof_of_caller):
            return self._turn_away("that is not the secret of this store")
        if not self._door.provider.is_host(hello.host):
            return self._turn_away(
                "this store knows of no such host, at least not yet: a copy of it has hosts of its own"
            )
        self._end_greeting()
        self._known, self.frames.most = True, MAX_FRAME
        self.send(Kind.WELCOME, 0, msgspec.json.encode(PeerWelcome(session.proof_of_called)))
        self.seal, self.frames.unseal = session.seal_of_called().put, session.seal_of_caller().take
        self.send(Kind.PONG, 0, self._vitals())
        if self._door.leaving:
            self.leave()

    def _port(self, operation: Operation, asked: Asked, arguments: Sequence[Any]) -> Any:
        self._door.check_here(subject(operation, asked.instance, arguments))
        port = self._door.served.port(asked.instance)
        if asked.op:
            port = port.once(asked.op)
        return port if asked.who is None else port.asked_by(asked.who)

    async def _do(self, operation: Operation, asked: Asked, arguments: Sequence[Any]) -> Any:
        port = self._port(operation, asked, arguments)
        return await run_once(operation, port, asked.instance, arguments, asked.op)

    def has_moved(self, error: Exception) -> bool:
        return is_elsewhere(error)
