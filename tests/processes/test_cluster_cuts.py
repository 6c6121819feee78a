"""Connections to PostgreSQL cut in mid-commit: what was said of each commit is true for ever."""

from __future__ import annotations

import pytest

from tests.postgres import Postgres
from tests.processes.cluster_cuts import cuts
from tests.processes.cutting_proxy import FAULTS

pytestmark = pytest.mark.anyio


async def test_commits_that_are_cut_off_are_done_once_or_never(postgres: Postgres) -> None:
    made, broken = await cuts(postgres, 2.5, faulty=0.2, actors=8)

    assert not broken
    assert made.faults.keys() >= {*FAULTS, "all cut"}, "a fault did not happen: the test shows less than it says"
    assert made.done
