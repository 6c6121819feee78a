"""`python -m tests.on_postgresql [words for pytest]`: the suites of the product on a PostgreSQL server, all of them.

Scheduler, schedules, queues and outbox in virtual time, HTTP and clients on the real clock; half an hour and more. A
part of them is in the ordinary suite: `tests/test_on_postgresql.py`.
"""

from __future__ import annotations

import sys
from typing import Final

import pytest

SUITES: Final = (
    "tests/actors/scheduler", "tests/actors/outbox", "tests/actors/client", "tests/http",
)  # fmt: skip
CLOCK = "hosts of a shared store go by the store's clock, which steps for none of them"
MEMORY = "it reaches into the engine in memory"
TROUBLE = "it says of the engine in memory that it is in trouble; a server's troubles are in tests/processes"
NOT_THERE: Final = {
    "test_lifecycle.py::test_a_clock_an_hour_back_fires_nothing_twice": CLOCK,
    "test_concurrent_changes.py::test_an_edit_leaves_alone_the_slots_that_a_clock_which_was_ahead_has_used": CLOCK,
    "test_store_and_clock_failures.py::test_a_backward_step_does_not_mute_an_alarm_that_failed": CLOCK,
    "test_debounce.py::test_after_a_step_back_of_the_clock": CLOCK,
    "test_throttle.py::test_after_a_step_back_of_the_clock": CLOCK,
    "test_rates.py::test_a_clock_that_is_set_starts_none_too_many_and_none_too_late": CLOCK,
    "test_rates.py::test_a_clock_that_was_set_back_while_no_host_ran_starves_no_job": CLOCK,
    "test_cooling.py::test_a_pool_cools_no_longer_where_the_clock_was_set_back_while_no_host_ran": CLOCK,
    "test_rates.py::test_a_waiter_writes_nothing_and_nobody_polls": MEMORY,
    "test_lifecycle.py::test_a_full_store_takes_and_starts_nothing_new_but_ends_what_runs": TROUBLE,
    "test_health.py::test_a_store_in_trouble_is_named_with_the_instant_it_began": TROUBLE,
    "test_health.py::test_each_trouble_of_a_store_has_its_code_while_it_lasts": TROUBLE,
    "test_health.py::test_a_host_that_cannot_read_which_alarms_there_are_says_so_until_it_can": MEMORY,
    "test_health.py::test_what_failed_while_a_store_took_nothing_is_over_once_the_work_is_done": TROUBLE,
    "test_store_and_clock_failures.py::test_a_store_that_hiccups_while_alarms_are_listed_is_asked_again": MEMORY,
    "test_store_and_clock_failures.py::test_who_stood_in_line_when_the_disk_was_full_goes_on_when_it_is_not": TROUBLE,
    "test_store_and_clock_failures.py::test_a_stop_waits_for_ends_that_could_not_be_stored_at_once": MEMORY,
    "test_claiming.py::test_waiting_claims_write_nothing_and_ask_nothing": MEMORY,
    "test_claims_under_failures.py::": MEMORY,
}
"""Tests that say nothing of this engine, by what their names hold, and why."""


def why_not(test: str) -> str | None:
    """Why a test is left out on a server; None: it is not."""
    return next((why for name, why in NOT_THERE.items() if name in test), None)


if __name__ == "__main__":
    words = sys.argv[1:]
    places = [] if any(word.startswith("tests/") for word in words) else [*SUITES]
    engine = [] if any(word.startswith("--engine") for word in words) else ["--engine", "postgresql"]
    sys.exit(pytest.main(["-q", *engine, *words, *places]))
