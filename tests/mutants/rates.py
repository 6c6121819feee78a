"""Breakages of rates and of the cooling of pools."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

RATES = "tests/actors/scheduler/test_rates.py::"
COOLING = "tests/actors/scheduler/test_cooling.py::"
METERS = "actors/scheduler/state/meters.py"

RATED = (
    Mutant(
        "rates: a start spends no token",
        METERS,
        "meter.credit = max(meter.credit - meter.rate[1], 0)",
        "meter.credit = max(meter.credit, 0)",
        tests=(RATES + "test_starts_are_spread_evenly_and_a_burst_is_what_a_pause_has_saved",),
    ),
    Mutant(
        "rates: what was spent is forgotten by a crash",
        "actors/scheduler/state/scheduler_state.py",
        "summaries.update(lines.meters.sealed())",
        "lines.meters.touched.clear()",
        tests=(
            RATES + "test_a_crash_and_a_restart_give_no_token_back_and_none_away",
            RATES + "test_the_row_says_when_the_next_token_comes",
        ),
    ),
    Mutant(
        "rates: nothing rings when the next token comes",
        "actors/scheduler/state/job_queues.py",
        "        token = None if self.meters is None else self.meters.next_at()",
        "        token = None",
        tests=(RATES + "test_a_waiter_writes_nothing_and_nobody_polls",),
    ),
    Mutant(
        "rates: time is the wall clock's, which is set",
        METERS,
        "            self._now = max(int((monotonic_s - self._zero) * 1000), self._now)",
        "            self._now = now",
        tests=(RATES + "test_a_clock_that_is_set_starts_none_too_many_and_none_too_late",),
    ),
    Mutant(
        "rates: who waits for a token waits until the instant of a clock that was set back since",
        METERS,
        "            return list(self._meters)",
        "            pass",
        tests=(RATES + "test_a_clock_that_was_set_back_while_no_host_ran_starves_no_job",),
    ),
    Mutant(
        "cooling: it lasts for as long as the clock was set back",
        METERS,
        "min(meter.cool_until - behind, now + COOLS_MOST_MS)",
        "min(meter.cool_until, now + COOLS_MOST_MS)",
        tests=(COOLING + "test_a_pool_cools_no_longer_where_the_clock_was_set_back_while_no_host_ran",),
    ),
    Mutant(
        "rates: a new rate begins with all of its tokens",
        METERS,
        "meter.credit = min(old.credit * full(flow.rate) // full(old.rate), most(flow.rate))",
        "meter.credit = full(flow.rate)",
        tests=(RATES + "test_another_rate_keeps_the_share_of_tokens",),
    ),
    Mutant(
        "rates: a job overrides the rate that an operator has set",
        "actors/scheduler/transitions/rates.py",
        '(flow.rate is not None and flow.rate_by == "put")',
        "False",
        tests=(RATES + "test_a_job_sets_the_rate_until_an_operator_does_or_takes_it_away",),
    ),
    Mutant(
        "rates: a job brings a rate back that an operator has taken away",
        "actors/scheduler/transitions/rates.py",
        "flow.rate_by == TAKEN_AWAY or ",
        "",
        tests=(RATES + "test_a_job_sets_the_rate_until_an_operator_does_or_takes_it_away",),
    ),
    Mutant(
        "cooling: a shorter answer ends a longer one",
        METERS,
        "meter.cool_until = max(meter.cool_until, self._now + min(ms, COOLS_MOST_MS))",
        "meter.cool_until = self._now + min(ms, COOLS_MOST_MS)",
        tests=(COOLING + "test_a_pool_cools_on_over_a_crash_and_a_shorter_answer_makes_it_no_shorter",),
    ),
    Mutant(
        "cooling: an operator cannot end it",
        METERS,
        "        meter.cool_until = 0\n        self.touched.add(pool)\n        return True",
        "        return True",
        tests=(COOLING + "test_an_operator_ends_the_cooling_and_that_is_noted",),
    ),
    Mutant(
        "health: jobs that a rate holds back are late",
        "actors/scheduler/queries/standing.py",
        "now - max(first, opened)",
        "now - first",
        tests=(RATES + "test_jobs_that_a_rate_holds_back_are_not_late",),
    ),
)
