"""How full a pool is: by the time in which all of its slots are held, hour by hour."""

from __future__ import annotations

from tests.actors.rehearsal.copies import HOUR_MS
from tocsin.actors.rehearsal.saturation import PoolUse
from tocsin.actors.scheduler.model.rows import PoolRow


def test_a_pool_is_full_while_all_slots_are_held_and_each_hour_has_its_share() -> None:
    pool = PoolUse(0)
    pool.set(PoolRow(2), 0)
    pool.taken(1_000, 0)
    pool.taken(HOUR_MS - 1_000, 5)
    pool.freed(HOUR_MS + 2_000)
    pool.pass_time(2 * HOUR_MS)
    assert dict(pool.full_ms) == {0: 1_000, 1: 2_000}
    assert (pool.held, pool.starts, pool.late, pool.waited) == (1, 2, [0, 5], 5)
    assert dict(pool.starts_by_hour) == {0: 2}


def test_a_cap_that_changes_counts_from_then_on() -> None:
    pool = PoolUse(0)
    pool.taken(0, 0)
    pool.set(PoolRow(2), 100)
    pool.set(PoolRow(1), 300)
    pool.freed(400)
    pool.pass_time(1_000)
    assert pool.full_ms.total() == 200, "one slot where nobody set a cap, and again at the end"


def test_a_pool_without_slots_holds_its_jobs_but_is_not_full() -> None:
    pool = PoolUse(0)
    pool.set(PoolRow(0), 0)
    pool.pass_time(1_000)
    assert not pool.full_ms
    pool.still_waits(900)
    assert pool.waited == 900


def test_what_was_held_before_is_no_start() -> None:
    pool = PoolUse(0)
    pool.taken(0, None)
    assert (pool.held, pool.starts, pool.late) == (1, 0, [])
