"""Two hosts of one store prove to each other that they know its secret, and seal every frame of their link.

Nothing is hidden by it: it says who wrote a frame, and that none was left out, doubled or changed on the way.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b
from typing import Final

import msgspec

from tocsin.actors.sharing.frames import BrokenLink

PEER_VERSION: Final = 1
"""Of what hosts say to each other. Hosts of other versions are reached by mail."""
LENGTH: Final = 16
"""Bytes of a seal."""


class Challenge(msgspec.Struct, array_like=True, frozen=True):
    """The first frame on a link, from the host that was called."""

    version: int
    host: str
    nonce: str


class PeerHello(msgspec.Struct, array_like=True, frozen=True):
    """The answer of the host that called: who it is, and that it knows the secret."""

    version: int
    host: str
    nonce: str
    proof: str


class PeerWelcome(msgspec.Struct, array_like=True, frozen=True):
    """The last unsealed frame: the host that was called knows the secret, too."""

    proof: str


class Session:
    """The keys of one link, which follow from the secret and from what both ends drew for this link alone."""

    def __init__(self, secret: bytes, challenge: Challenge, caller: str, nonce: str) -> None:
        said = msgspec.json.encode((PEER_VERSION, challenge.host, challenge.nonce, caller, nonce))
        self._secret, self._said = secret, said

    def _derive(self, what: bytes) -> bytes:
        return hmac.digest(self._secret, b"tocsin peer: " + what + b"\n" + self._said, "sha256")

    @property
    def proof_of_caller(self) -> str:
        return self._derive(b"caller knows").hex()

    @property
    def proof_of_called(self) -> str:
        return self._derive(b"called knows").hex()

    def seal_of_caller(self) -> Seal:
        return Seal(self._derive(b"caller writes"))

    def seal_of_called(self) -> Seal:
        return Seal(self._derive(b"called writes"))


def is_proof(given: str, expected: str) -> bool:
    """Compare in a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


class Seal:
    """Seals what one end writes, frame by frame."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._frames = 0

    def put(self, kind: int, number: int, body: bytes) -> bytes:
        """Return the body of the next frame with its seal."""
        return body + self._next(kind, number, body)

    def take(self, kind: int, number: int, body: bytes) -> bytes:
        """Return the body of the next frame without its seal; BrokenLink if that is wrong."""
        said, seal = body[:-LENGTH], body[-LENGTH:]
        if not hmac.compare_digest(seal, self._next(kind, number, said)):
            raise BrokenLink("a frame without the right seal")
        return said

    def _next(self, kind: int, number: int, body: bytes) -> bytes:
        digest = blake2b(b"%d %d %d\n" % (self._frames, kind, number), key=self._key, digest_size=LENGTH)
        digest.update(body)
        self._frames += 1
        return digest.digest()
