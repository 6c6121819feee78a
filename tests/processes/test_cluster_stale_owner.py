"""A stale owner's write on both versions of PostgreSQL: refused whenever it comes, and the tries can find the fault."""

from __future__ import annotations

import pytest

from tests.postgres import Postgres
from tests.processes.cluster_stale_owner import PHASES, stale

pytestmark = pytest.mark.anyio


async def test_no_write_of_a_stale_owner_comes_through(each_postgres: Postgres) -> None:
    tries = await stale(each_postgres, 200)

    assert not tries.through.total()
    assert tries.tried == dict.fromkeys(PHASES, 40)


async def test_without_the_lock_of_the_row_some_come_through(each_postgres: Postgres) -> None:
    control = await stale(each_postgres, 20, locked=False)

    assert control.through["during"]
    assert not control.through["before"] + control.through["after"]
