"""Breakages of health: what is told too early, too late, for ever or not at all."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

F = "tests/actors/scheduler/test_health_facts.py::"
AGREES = "tests/http/dashboard/test_health_agrees.py::test_health_turns_and_turns_back_alike_wherever_it_is_seen"
HOST = "actors/scheduler/queries/host_health.py"
STANDING = "actors/scheduler/queries/standing.py"

W = "tests/actors/scheduler/test_why_in_words.py::"

HEALTH = (
    Mutant(
        "health: losses of attempts are not counted",
        "actors/scheduler/inflight/activity.py",
        "                self._losses.note(sum(kind in LOST for kind in what.expired), at)\n",
        "                pass\n",
        tests=(F + "test_many_lost_attempts_are_amber_for_ten_minutes",),
    ),
    Mutant(
        "why: jobs of another priority are counted as if they had the same",
        "actors/scheduler/queries/in_front.py",
        "due + (priority - job.priority) * PRIORITY_MS",
        "due",
        tests=(W + "test_a_full_pool_says_whose_lease_ends_first_and_how_many_go_before",),
    ),
    Mutant(
        "why: jobs that are not due yet go before",
        "actors/scheduler/queries/in_front.py",
        'end = min(prefix + b"%015d/%b" % (same_turn, job.id.encode()), prefix + b"%015d/" % (now + 1))',
        'end = prefix + b"%015d/%b" % (same_turn, job.id.encode())',
        tests=(W + "test_a_full_pool_says_whose_lease_ends_first_and_how_many_go_before",),
    ),
    Mutant(
        "why: a bulk retry comes to what died after it was asked for",
        "actors/scheduler/queries/why.py",
        "            row.since <= parked < row.before\n",
        "            row.since <= parked\n",
        tests=(W + "test_a_dead_job_that_a_bulk_retry_has_passed_is_not_promised_another",),
    ),
    Mutant(
        "health: jobs of a full or paused pool are late",
        STANDING,
        "and (not pool or slots_left(row := pools.get(pool), held[pool])):",
        "and (not pool or (row := pools.get(pool)) is row):",
        tests=(F + "test_what_is_held_on_purpose_is_not_late",),
    ),
    Mutant(
        "health: jobs of a paused instance are late",
        STANDING,
        "    if paused or is_test_clock:\n",
        "    if is_test_clock:\n",
        tests=(F + "test_what_is_held_on_purpose_is_not_late",),
    ),
    Mutant(
        "health: a test clock is late",
        STANDING,
        "    if paused or is_test_clock:\n",
        "    if paused:\n",
        tests=(F + "test_what_is_held_on_purpose_is_not_late",),
    ),
    Mutant(
        "health: what was due before the host started is late at once",
        HOST,
        "min(standing.late_ms, int((host.clock.monotonic() - self._began) * 1000))",
        "standing.late_ms",
        tests=(F + "test_a_burst_and_an_outage_of_the_host_are_not_sick",),
    ),
    Mutant(
        "health: a scheduler that starts nothing is green",
        HOST,
        "    if not is_busy and stuck_ms >= STUCK_MS:\n",
        "    if False:\n",
        tests=(F + "test_a_scheduler_that_starts_nothing_although_it_could_is_red_until_it_does",),
    ),
    Mutant(
        "health: leases that are over are nobody's business",
        STANDING,
        "sum(lease.until + OVER_FOR_MS <= wall for lease in leases)",
        "0",
        tests=(F + "test_leases_that_are_over_and_left_are_red_until_they_are_handled",),
    ),
    Mutant(
        "health: letters that were retried are still counted",
        "actors/scheduler/inflight/deaths.py",
        "or min(count, kept) < limit:",
        "or count < limit:",
        tests=(F + "test_a_broken_receiver_is_red_while_jobs_die_and_green_again_once_they_are_delivered",),
    ),
    Mutant(
        "health: jobs that die are red although callbacks succeed again",
        "actors/scheduler/inflight/deaths.py",
        "        if failing is None:\n            return None\n",
        "",
        tests=(F + "test_a_broken_receiver_is_red_while_jobs_die_and_green_again_once_they_are_delivered",),
    ),
    Mutant(
        "health: jobs that were refused for good died of failing callbacks",
        "actors/scheduler/inflight/callback_failures.py",
        "SUCCEEDED: Final = frozenset({Verdict.DONE, Verdict.ACCEPTED, Verdict.DEAD})",
        "SUCCEEDED: Final = frozenset({Verdict.DONE, Verdict.ACCEPTED})",
        (
            (
                "actors/scheduler/inflight/callback_failures.py",
                "FAILED: Final = frozenset({Verdict.FAILED, Verdict.UNKNOWN})",
                "FAILED: Final = frozenset({Verdict.FAILED, Verdict.UNKNOWN, Verdict.DEAD})",
            ),
        ),
        tests=(F + "test_a_receiver_that_refuses_jobs_for_good_works",),
    ),
    Mutant(
        "health: an instance tells of the deaths of others",
        HOST,
        "self._dying(actor.name)",
        "self._dying(None)",
        tests=(F + "test_an_instance_tells_of_its_own_deaths_and_the_host_of_all",),
    ),
    Mutant(
        "health: an origin that was lost again is still called reached",
        "actors/scheduler/inflight/circuit.py",
        "        self.failures += 1\n        self.reached_at = None\n",
        "        self.failures += 1\n",
        tests=(
            "tests/actors/scheduler/test_origin_reached_again.py::test_a_slow_origin_that_is_back_is_not_called_away",
        ),
    ),
    Mutant(
        "health: one success in fifteen is well",
        "actors/scheduler/inflight/callback_failures.py",
        "        if failed < ALL_OF or failed < NEARLY * succeeded:\n",
        "        if True:\n",
        tests=(F + "test_a_receiver_that_fails_nearly_always_is_amber_and_one_that_fails_often_is_not",),
    ),
    Mutant(
        "health: one failure in three is a broken receiver",
        "actors/scheduler/inflight/callback_failures.py",
        "failed < NEARLY * succeeded",
        "False",
        tests=(F + "test_a_receiver_that_fails_nearly_always_is_amber_and_one_that_fails_often_is_not",),
    ),
    Mutant(
        "health: a loop that stood still once is told for ever",
        "actors/runtime/loop_lag.py",
        "if at > since and late > limit_ms",
        "if late > limit_ms",
        tests=(F + "test_a_loop_that_stands_still_is_amber_for_a_minute",),
    ),
    Mutant(
        "health: pages do not tell of the server's limits",
        "actors/http/dashboard/asked.py",
        "self._status = self.crowd.seen(await self.port.reads.status())",
        "self._status = await self.port.reads.status()",
        tests=(AGREES,),
    ),
    Mutant(
        "health: the probe does not tell of damaged rows",
        "actors/scheduler/queries/host_health.py",
        ", *_of_lost(await lost(view))]",
        "]",
        tests=(AGREES,),
    ),
    Mutant(
        "health: the probe does not look at schedulers",
        "actors/http/probes.py",
        "                await self._host.look()\n",
        "",
        tests=(F + "test_the_probe_looks_at_the_schedulers_in_memory",),
    ),
)
