"""A round of mixed load with the host or the receiver killed. CI runs five; a hundred are a command of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.rounds import STORE, run
from tests.processes.test_sigkill import assert_nothing_left


@pytest.mark.anyio
async def test_mixed_load_survives_kills_of_host_and_receiver(tmp_path: Path) -> None:
    rounds = run(1, 20261129, tmp_path)
    rounds.check()

    await assert_nothing_left(tmp_path, STORE)
