"""One end of a link: frames in, frames out; all frames of one round of the loop go out in one write."""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final
from weakref import WeakSet

from tocsin.actors.sharing.frames import BrokenLink, Frames, Kind, frame

log = logging.getLogger("tocsin.sharing")

AT_ONCE: Final = 1024 * 1024
"""Bytes that are written without waiting for the end of the round."""


class Wire(asyncio.Protocol, ABC):
    """Sends and receives frames until its transport is lost."""

    def __init__(self) -> None:
        self.frames = Frames()
        self.is_lost = False
        self.is_full = False
        """True while the other end does not read what was written to it."""
        self.seal: Callable[[int, int, bytes], bytes] | None = None
        """Puts a seal on each frame that is sent from here on."""
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushing = False

    @abstractmethod
    def received(self, kind: int, number: int, body: bytes) -> None:
        """Take one frame; BrokenLink if it is none that the other end may send."""

    @abstractmethod
    def lost(self) -> None:
        """Note that nothing comes or goes any more; called once."""

    # ---- For the loop ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream transport, as asyncio has it for sockets
        _connected.add(self)
        if self._out:
            self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for kind, number, body in self.frames.feed(data):
                self.received(kind, number, body)
        except BrokenLink as error:
            log.warning("a link between processes of one store is cut: %s", error)
            self.abort()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False

    def connection_lost(self, error: Exception | None) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._out.clear()
            self.lost()

    # ---- Sending ---------------------------------------------------------------------------------

    def send(self, kind: Kind, number: int = 0, body: bytes = b"") -> None:
        """Write a frame at the end of this round of the loop; into the void once the link is lost."""
        if self.is_lost:
            return
        data = frame(kind, number, body if self.seal is None else self.seal(kind, number, body))
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > AT_ONCE:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is None or not self._out:
            return
        out, self._out, self._out_bytes = b"".join(self._out), [], 0
        self._transport.write(out)

    def close(self) -> None:
        """Write what is left, then end the link."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the link at once."""
        if self._transport is not None:
            self._transport.abort()

    def fileno(self) -> int:
        """Return the number of its socket; -1 if it has none."""
        connected = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if connected is None else connected.fileno()


def release(numbers: Iterable[int]) -> None:
    """Let go of sockets in a forked process, so that their other ends hear when the parent dies. Their numbers stay
    taken: whoever has them closes them later."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in numbers:
        if number >= 0:
            os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


_connected: WeakSet[Wire] = WeakSet()


def _forked() -> None:
    release(each.fileno() for each in list(_connected))


os.register_at_fork(after_in_child=_forked)
