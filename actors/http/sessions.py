"""Sessions of browsers: a cookie that stands for a token, for some hours.

A session is kept nowhere. Its cookie is signed with the digest of its token, so every process that knows the token
knows the session, a restart ends none, and a token that is taken away takes its sessions with it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from tocsin.actors.http.tokens import Token

LIFE_MS: Final = 12 * 3_600_000
_SHAPE: Final = re.compile(r"([0-9]{13})\.([0-9a-f]{32})\.([0-9a-f]{64})")
_PURPOSE: Final = b"tocsin session 1\x00"
_LOOK_AT: Final = 10_000
"""So many ended sessions are kept before those are looked for whose time is over; or twice as many as are left then."""


class Sessions:
    """Begins, finds and ends sessions."""

    def __init__(self, now_ms: Callable[[], int], random: Random) -> None:
        self._now_ms, self._random = now_ms, random
        self._look_at = _LOOK_AT
        self._ended: dict[str, int] = {}
        """Sessions that were logged out here, until their time is over anyway."""

    def begin(self, token: Token) -> str:
        """Return the cookie of a new session."""
        said = f"{self._now_ms() + LIFE_MS}.{self._random.randbytes(16).hex()}"
        return f"{said}.{_sign(token, said)}"

    def find(self, tokens: Sequence[Token], cookie: str) -> Token | None:
        """Return the token that a session stands for; None if it is over, or never was one."""
        match = _SHAPE.fullmatch(cookie)
        if match is None or cookie in self._ended:
            return None
        left_ms = int(match[1]) - self._now_ms()
        if not 0 < left_ms <= LIFE_MS:
            return None
        said = f"{match[1]}.{match[2]}"
        found: Token | None = None
        for token in tokens:
            if hmac.compare_digest(_sign(token, said), match[3]):
                found = token
        return found

    def end(self, cookie: str) -> None:
        """End a session in this process; in others it ends with its cookie, and with its time."""
        now = self._now_ms()
        if len(self._ended) >= self._look_at:
            self._ended = {one: until for one, until in self._ended.items() if until > now}
            self._look_at = max(_LOOK_AT, 2 * len(self._ended))
        if (match := _SHAPE.fullmatch(cookie)) is not None:
            self._ended[cookie] = int(match[1])


def _sign(token: Token, said: str) -> str:
    return hmac.digest(token.digest, _PURPOSE + said.encode(), "sha256").hex()
