"""Wait for what happens in other processes, which raise no event here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
DEADLINE_S = 90.0


def wait_until(
    condition: Callable[[], T | None], seconds: float = DEADLINE_S, ignoring: type[Exception] | None = None
) -> T:
    """Poll a condition until it is true, and return its value; an `ignoring` exception counts as false."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := condition():
                return found
        except Exception as error:
            if ignoring is None or not isinstance(error, ignoring):
                raise
        assert time.monotonic() < deadline, f"not true within {seconds:g} s"
        time.sleep(0.02)
