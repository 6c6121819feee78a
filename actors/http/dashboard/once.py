"""A form is done once: a second click on its button, or the same form sent again, has the answer of the first.

Most acts do no harm when they are done twice. A bulk retry does: two of them are twice as fast as was asked for.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, Final

import msgspec

from tocsin.actors.http.responses import Reply

ONCE: Final = "once"
"""The member of a form that holds its own mark, which no other form has."""
KEPT_S: Final = 600.0
MOST: Final = 1_000
"""Answers that are kept. If more forms are sent within ten minutes, the oldest are forgotten."""
_SHAPE: Final = re.compile(r"[0-9a-f]{32}")


def new_once(random: Random) -> str:
    return random.randbytes(16).hex()


class Once:
    """The forms that were sent to this process lately. A form that is filled in otherwise is another one."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._sent: dict[bytes, tuple[float, asyncio.Task[Reply]]] = {}

    async def do(self, once: str, form: Mapping[str, str], work: Callable[[], Coroutine[Any, Any, Reply]]) -> Reply:
        """Do what a form asks for; or, if that was done or is under way, return its answer. What fails may be tried
        again."""
        if not _SHAPE.fullmatch(once):
            return await work()
        key, now = _key(once, form), self._monotonic()
        self._forget(now)
        known = self._sent.get(key)
        if known is None:
            # A task of its own: a browser hangs up on the first click when the second one comes.
            known = self._sent[key] = now, asyncio.get_running_loop().create_task(work())
        try:
            return await asyncio.shield(known[1])
        except Exception:
            self._sent.pop(key, None)
            raise

    def _forget(self, now: float) -> None:
        while self._sent:
            oldest = next(iter(self._sent))
            at, task = self._sent[oldest]
            if not task.done() or (now - at < KEPT_S and len(self._sent) < MOST):
                break
            del self._sent[oldest]


def _key(once: str, form: Mapping[str, str]) -> bytes:
    return hashlib.blake2b(msgspec.json.encode([once, sorted(form.items())]), digest_size=16).digest()
