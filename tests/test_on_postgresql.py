"""Some tests of the product again, on a PostgreSQL server in virtual time; `python -m tests.on_postgresql` has all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.actors.scheduler import test_attempts, test_kept_as_letter, test_pools
from tests.actors.scheduler.queues import test_chains, test_claiming
from tests.actors.scheduler.recurring import test_firing
from tests.engine_below import BELOW
from tests.on_postgresql import NOT_THERE, why_not
from tests.postgres import Postgres

CHOSEN: tuple[Callable[[], None], ...] = (
    test_attempts.test_failures_climb_the_ladder_and_end_dead,
    test_pools.test_a_lost_host_leaks_no_slot,
    test_pools.test_a_removed_instance_leaves_nothing_but_its_epoch,
    test_firing.test_a_week_down_with_misfire_one_is_one_job_for_all,
    test_chains.test_a_late_success_starts_what_follows_once,
    test_claiming.test_a_lease_that_ends_gives_the_job_to_another_worker_and_counts_a_loss,
    test_kept_as_letter.test_it_is_kept_once_however_often_it_is_brought,
)


@pytest.fixture
def on_server(postgres: Postgres) -> Iterator[None]:
    """Hosts of simulations stand on the server of this process."""
    with BELOW.on(postgres):
        yield


@pytest.mark.parametrize("test", CHOSEN, ids=lambda test: test.__name__)
def test_it_holds_on_postgresql_too(test: Callable[[], None], on_server: None) -> None:
    test()


def test_a_host_of_a_simulation_stands_on_the_server(on_server: None, postgres: Postgres) -> None:
    test_attempts.test_no_retries_is_legal()
    server = BELOW.server
    assert server.url.startswith(postgres.url("db").partition("/db")[0][:20])
    (schema,) = {row["table_schema"] for row in server.sql(
        "SELECT table_schema FROM information_schema.tables WHERE table_name = 'kv'"
    )}  # fmt: skip
    assert server.sql(f"SELECT count(*) AS n FROM {schema}.kv")[0]["n"] > 0


def test_what_is_left_out_says_why() -> None:
    assert all(NOT_THERE.values())
    assert why_not("tests/actors/scheduler/queues/test_claims_under_failures.py::test_x") is not None
    assert why_not("tests/actors/scheduler/test_attempts.py::test_no_retries_is_legal") is None
