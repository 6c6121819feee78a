"""A real server killed in the middle of chains, half of them pulled by workers over HTTP, half called back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.chains import STORE, Chains
from tests.processes.test_sigkill import assert_nothing_left


@pytest.mark.anyio
async def test_every_chain_ends_complete_though_its_host_is_killed_twice(tmp_path: Path) -> None:
    """`python -m tests.processes.chains` does it with 2,000 jobs, and kills in the middle of callbacks too."""
    chains = Chains(tmp_path, count=40, kills=2, mid_callback=False, seed=20261129)
    chains.run()

    chains.check()
    await assert_nothing_left(tmp_path, STORE, acts=True)
