"""`tocsin demo --ui`: the demo goes on, and its dashboard is shown in a browser, until somebody has seen enough."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from tocsin.cli.demo.plan import plan
from tocsin.cli.demo.stage import cancelled_by_signals, schedule, set_up
from tocsin.cli.output import now_ms
from tocsin.cli.words import say

SCREENS: Final = ("DISPLAY", "WAYLAND_DISPLAY")
"""Variables that say where windows open; without one of them a browser would take over the terminal."""


async def stay(directory: Path, spread_ms: int) -> None:
    """Run the server, the receiver and the worker, with new jobs each `spread_ms`, until cancelled."""
    cancelled_by_signals()
    async with AsyncExitStack() as stack:
        stage = await set_up(stack, directory, None)
        address = f"{str(stage.client.base_url).rstrip('/')}/ui"
        say(
            f"tocsin: the demo goes on, with {plan(0, spread_ms).total} new jobs each {spread_ms / 1000:g} s, until "
            f"Ctrl-C\ntocsin: dashboard {address}"
        )
        if has_screen(os.environ, sys.platform):
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        while True:
            await schedule(stage.client, plan(now_ms(), spread_ms))
            await asyncio.sleep(spread_ms / 1000)


def has_screen(environment: Mapping[str, str], platform: str) -> bool:
    """Return whether a browser can open a window here."""
    return platform in ("darwin", "win32", "cygwin") or any(environment.get(name) for name in SCREENS)
