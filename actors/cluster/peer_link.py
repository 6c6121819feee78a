"""The end of a link to another host, at the host that called."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from tocsin.actors.cluster.seals import PEER_VERSION, Challenge, PeerHello, PeerWelcome, Session, is_proof
from tocsin.actors.sharing.frames import MAX_FRAME, MAX_HELLO, BrokenLink, Kind
from tocsin.actors.sharing.greeting import Welcome
from tocsin.actors.sharing.link import Link
from tocsin.actors.sharing.operations import Operation
from tocsin.errors import StoreLocked

_challenge: Final = msgspec.json.Decoder(Challenge)
_welcome: Final = msgspec.json.Decoder(PeerWelcome)


class PeerLink(Link):
    """One link to one start of another host, which has shown that it is that one."""

    def __init__(
        self, me: str, to: str, secret: bytes, random: Random, undo: Callable[[Operation, bytes], None]
    ) -> None:
        super().__init__(None, undo)
        self._me, self._to, self._secret, self._random = me, to, secret, random
        self._session: Session | None = None
        self.frames.most = MAX_HELLO

    def received(self, kind: int, number: int, body: bytes) -> None:
        if self.seal is not None:
            super().received(kind, number, body)
        elif kind == Kind.CHALLENGE and self._session is None:
            self._introduce(body)
        elif kind == Kind.WELCOME and self._session is not None:
            self._enter(self._session, body)
        elif kind == Kind.TURNED_AWAY:
            self._refused(body.decode("utf-8", "replace"))
        else:
            raise BrokenLink(f"a stranger sent a frame of kind {kind}")

    def _introduce(self, body: bytes) -> None:
        try:
            challenge = _challenge.decode(body)
        except msgspec.MsgspecError as error:
            raise BrokenLink("a stranger did not say who it is") from error
        if challenge.version != PEER_VERSION or challenge.host != self._to:
            return self._refused(f"host {challenge.host} of version {challenge.version} was met, not {self._to}")
        nonce = f"{self._random.getrandbits(128):032x}"
        self._session = Session(self._secret, challenge, self._me, nonce)
        hello = PeerHello(PEER_VERSION, self._me, nonce, self._session.proof_of_caller)
        self.send(Kind.HELLO, 0, msgspec.json.encode(hello))

    def _enter(self, session: Session, body: bytes) -> None:
        try:
            welcome = _welcome.decode(body)
        except msgspec.MsgspecError as error:
            raise BrokenLink("a stranger sent a welcome that cannot be read") from error
        if not is_proof(welcome.proof, session.proof_of_called):
            raise BrokenLink("a stranger that does not know the secret of the store took the place of a host")
        self.seal, self.frames.unseal = session.seal_of_caller().put, session.seal_of_called().take
        self.frames.most = MAX_FRAME
        if not self.welcome.done():
            self.welcome.set_result(Welcome(0))

    def _refused(self, why: str) -> None:
        if not self.welcome.done():
            self.welcome.set_exception(StoreLocked(why))
            self.welcome.exception()
        self.abort()
