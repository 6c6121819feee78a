"""Which event loop a benchmark runs on: uvloop where it is installed, as in `tocsin serve`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec

NAMES = ("asyncio", "uvloop")


def default_loop() -> str:
    return "uvloop" if find_spec("uvloop") else "asyncio"


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """For `asyncio.Runner`; None for asyncio's own."""
    if name != "uvloop":
        return None
    import uvloop

    return uvloop.new_event_loop
