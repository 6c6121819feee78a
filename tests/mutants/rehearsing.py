"""Breakages of rehearsals that a test of the suite must notice."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

R = "tests/actors/rehearsal/test_rehearse.py::"
H = "tests/actors/rehearsal/test_history.py::"
S = "tests/actors/rehearsal/test_saturation.py::"
FOLDER = "actors/rehearsal/"

REHEARSING = (
    Mutant(
        "rehearsals: attempts that ran when the store was copied are lost",
        FOLDER + "rehearse.py",
        "        hold_attempts(self._copy, self._plan.start + LEASE_MS)\n",
        "",
        tests=(R + "test_attempts_that_ran_when_the_store_was_copied_go_on_and_end",),
    ),
    Mutant(
        "rehearsals: pools stay as they are",
        FOLDER + "rehearse.py",
        "        if not self._plan.pools:\n            return\n",
        "        return\n",
        tests=(
            R + "test_pools_are_set_before_anything_starts_in_each_instance_that_has_them",
            R + "test_a_rate_is_set_as_an_operator_sets_it",
        ),
    ),
    Mutant(
        "rehearsals: what is due at the end is in them",
        FOLDER + "rehearse.py",
        "HALF_MS: Final = 0.5\n",
        "HALF_MS: Final = -500.0\n",
        tests=(R + "test_starts_lateness_and_pools_are_those_that_arithmetic_says",),
    ),
    Mutant(
        "rehearsals: origins of what follows a job are not there",
        FOLDER + "targets.py",
        "                following = [*jobs_of(followers_of(job, whole)), *jobs_of(on_dead_of(job, whole))]\n",
        "                following = [*jobs_of(followers_of(job, whole))]\n",
        tests=(R + "test_jobs_go_to_named_origins_whatever_follows_them",),
    ),
    Mutant(
        "rehearsals: a lease that is extended is another start",
        FOLDER + "watching.py",
        "        if token in self.runs:\n            return",
        "        if False:\n            return",
        tests=(R + "test_calls_that_take_longer_than_their_deadline_are_accepted_and_hold_their_slot",),
    ),
    Mutant(
        "rehearsals: slots of a pool are not seen to be free again",
        FOLDER + "watching.py",
        "self._use(ended.instance, ended.pool).freed(self.now_ms())",
        "self._use(ended.instance, ended.pool).pass_time(self.now_ms())",
        tests=(R + "test_starts_lateness_and_pools_are_those_that_arithmetic_says",),
    ),
    Mutant(
        "rehearsals: the time in which a pool is full belongs to its first hour",
        FOLDER + "saturation.py",
        "            end = min((start // HOUR_MS + 1) * HOUR_MS, now)\n",
        "            end = now\n",
        tests=(S + "test_a_pool_is_full_while_all_slots_are_held_and_each_hour_has_its_share",),
    ),
    Mutant(
        "rehearsals: calls are drawn from all paths alike",
        FOLDER + "history.py",
        "        known = [self.by_path.get(path, ()), self.by_pool.get(pool, ()), self.everything]\n",
        "        known = [self.everything]\n",
        tests=(H + "test_calls_are_drawn_from_their_path_then_their_pool_then_all_then_from_nothing",),
    ),
    Mutant(
        "rehearsals: attempts that hosts ended tell of receivers",
        FOLDER + "history.py",
        "        if row.outcome not in TELLING:\n            return\n",
        "",
        tests=(H + "test_what_receivers_did_not_decide_tells_nothing_of_them",),
    ),
    Mutant(
        "rehearsals: workers are as many as jobs",
        FOLDER + "answering.py",
        "                free -= 1\n",
        "",
        tests=(R + "test_as_many_jobs_of_queues_are_worked_on_at_once_as_was_said",),
    ),
    Mutant(
        "rehearsals: paused schedules are said to meet clock changes",
        FOLDER + "oddities.py",
        "cursor is None or cursor.paused or cursor.next_slot is None",
        "cursor is None",
        tests=(R + "test_slots_that_a_clock_change_touches_are_named",),
    ),
    Mutant(
        "history: a row does not say what ran",
        "actors/scheduler/transitions/apply.py",
        '    ran = (job.function_path or job.workflow or "", job.pool)\n',
        '    ran = ("", "")\n',
        tests=("tests/actors/rehearsal/test_agreement.py::test_a_rehearsal_of_a_day_agrees_with_the_day",),
    ),
)
