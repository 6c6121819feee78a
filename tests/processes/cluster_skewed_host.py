"""`tocsin`, on a machine whose clock is wrong: TEST_CLOCK_AHEAD_MS says by how much."""

from __future__ import annotations

import os
import time

from tocsin.actors.runtime.clock import SystemClock
from tocsin.cli import main

AHEAD_MS = int(os.environ["TEST_CLOCK_AHEAD_MS"])


def now_ms(_: object) -> int:
    return time.time_ns() // 1_000_000 + AHEAD_MS


if __name__ == "__main__":
    setattr(SystemClock, "now_ms", now_ms)  # noqa: B010  # a class is changed that nobody else would change
    main()
