"""Breakages of test clocks that a test of the suite must notice."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

T = "tests/actors/scheduler/test_clocks.py::"
C = "tests/actors/scheduler/test_clocks_over_crashes.py::"

CLOCKS = (
    Mutant(
        "clocks: an instance that was used is given one",
        "actors/scheduler/transitions/clock.py",
        "    if any(key == META_COUNTERS or not key",
        "    if any(False and not key",
        tests=(T + "test_a_clock_is_given_to_a_new_instance_only_and_never_taken_away",),
    ),
    Mutant(
        "clocks: a second advance takes the place of the first",
        "actors/scheduler/transitions/clock.py",
        "    if clock.target:\n        return ConflictError(",
        "    if False:\n        return ConflictError(",
        tests=(T + "test_one_advance_at_a_time_and_only_forward",),
        may_hang=True,
    ),
    Mutant(
        "clocks: timers that are due do not hold time",
        "actors/scheduler/transitions/clock.py",
        "    return state.next_timer is None or state.next_timer > turn.now\n",
        "    return True\n",
        tests=(T + "test_an_instant_with_more_than_a_turn_can_do_is_whole_before_time_goes_on",),
    ),
    Mutant(
        "clocks: leases end by the test clock",
        "actors/scheduler/transitions/job.py",
        "    wall = now if wall is None else wall\n",
        "    wall = now\n",
        tests=(T + "test_leases_end_by_the_real_clock",),
        may_hang=True,
    ),
    Mutant(
        "clocks: a delay counts from the clock of whoever asks",
        "actors/scheduler/transitions/submit.py",
        "    if turn.state.clock is not None:\n",
        "    if False:\n",
        tests=(T + "test_a_delay_that_was_counted_by_another_clock_is_counted_again",),
    ),
    Mutant(
        "clocks: a host does not know them before it serves",
        "actors/scheduler/actor/stored_clocks.py",
        "            self._clocks.note(name, row)\n",
        "            pass\n",
        tests=(C + "test_an_advance_goes_on_after_a_crash_and_nothing_is_lost",),
    ),
    Mutant(
        "clocks: handles made before keep the live clock",
        "actors/scheduler/inflight/instance_clocks.py",
        "            reader.use_clock(now_ms)\n",
        "            pass\n",
        tests=(T + "test_delays_count_from_where_the_clock_stands_and_what_is_due_there_is_sent_at_once",),
    ),
    Mutant(
        "clocks: time does not wait for workers",
        "actors/scheduler/actor/clock_of_turn.py",
        "        if not any(",
        "        if True or not any(",
        tests=(T + "test_time_waits_for_workers_that_are_there_and_not_for_ever_for_others",),
    ),
    Mutant(
        "clocks: one that cannot be read leaves its instance live",
        "actors/scheduler/state/rebuild.py",
        "        state.clock = _clock(meta[CLOCK])\n",
        "        state.clock = state.read(ClockRow, CLOCK, meta[CLOCK])\n",
        tests=(C + "test_a_clock_that_cannot_be_read_stops_its_instance_instead_of_running_it_live",),
    ),
)
