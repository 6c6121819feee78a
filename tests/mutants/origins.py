"""Breakages of named origins."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

T = "tests/actors/scheduler/test_named_origins.py::"
P = "tests/actors/scheduler/test_permits.py::"
QUEUES = "actors/scheduler/state/job_queues.py"
PERMITS = "actors/scheduler/inflight/permits.py"

ORIGINS = (
    Mutant(
        "origins: all have the permits of the host's own",
        "actors/scheduler/inflight/lanes.py",
        "            permits = self.permits.company.of(origin)\n",
        "            permits = self.permits\n",
        tests=(T + "test_a_slow_origin_has_lanes_and_permits_of_its_own",),
    ),
    Mutant(
        "origins: callbacks are sent to the host's own, whatever they name",
        "actors/scheduler/inflight/sending.py",
        "        gate = self._gates.get(claim.lease.origin)\n",
        '        gate = self._gates.get("")\n',
        tests=(T + "test_a_job_goes_to_the_origin_it_names_signed_with_the_secrets_of_that_one_only",),
    ),
    Mutant(
        "origins: all share one start order, so a dead one stands before the others",
        QUEUES,
        '        return self._called.pick(now, ORIGIN + origin if origin else "", most, Counter())\n',
        '        return self._called.pick(now, "", most, Counter())\n',
        tests=(T + "test_a_slow_origin_has_lanes_and_permits_of_its_own",),
    ),
    Mutant(
        "origins: the host's own goes first in a pool that several share",
        QUEUES,
        "        return sorted(orders, key=lambda name: (orders[name] is None, orders[name] or 0, name))\n",
        "        return sorted(orders)\n",
        tests=(T + "test_jobs_of_one_pool_start_in_their_order_whichever_origin_they_go_to",),
    ),
    Mutant(
        "origins: a job that must run alone runs beside callbacks to others",
        PERMITS,
        "        return all(one.free == one.limit for one in self.all)\n",
        "        return any(one.free == one.limit for one in self.all)\n",
        tests=(P + "test_who_runs_alone_waits_for_all_origins_and_holds_all_of_them_and_each_has_its_turn",),
    ),
    Mutant(
        "origins: who was held back for a job of another one is not woken after it",
        PERMITS,
        "        for one in tuple(self.company.all):\n            one._wake_first()\n",
        "        self._wake_first()\n",
        tests=(P + "test_who_runs_alone_waits_for_all_origins_and_holds_all_of_them_and_each_has_its_turn",),
    ),
    Mutant(
        "origins: one that cools is called all the same",
        PERMITS,
        "        if self._cools_until and self.cools_s():\n            return ORIGIN_COOLING\n",
        "",
        tests=(T + "test_nothing_goes_to_an_origin_that_cools_and_why_says_until_when",),
    ),
    Mutant(
        "origins: a probe goes to one that cools",
        PERMITS,
        "        if self._cools_until and self.cools_s():\n            return ORIGIN_COOLING\n"
        "        if self.circuit.broken is not None:\n            return CIRCUIT_OPEN  # but for a probe\n",
        "        if self.circuit.broken is not None:\n            return CIRCUIT_OPEN  # but for a probe\n"
        "        if self._cools_until and self.cools_s():\n            return ORIGIN_COOLING\n",
        tests=(P + "test_an_origin_cools_for_an_hour_at_most_and_no_probe_goes_meanwhile",),
    ),
    Mutant(
        "origins: nobody is woken when one has cooled",
        PERMITS,
        "        return max(waits, self.cools_s()) if self._cools_until else waits\n",
        "        return waits\n",
        tests=(T + "test_nothing_goes_to_an_origin_that_cools_and_why_says_until_when",),
        may_hang=True,
    ),
    Mutant(
        "origins: jobs of one that the host has not stand in line for ever",
        "actors/scheduler/inflight/lanes_to.py",
        " or not self.permits.limit:\n            self.leave",
        ":\n            self.leave",
        tests=(T + "test_jobs_of_an_origin_that_the_next_host_has_not_wait_until_one_has_it",),
    ),
    Mutant(
        "origins: a name that the host has not is accepted",
        "actors/scheduler/client/job_checks.py",
        "        elif origin is not None:\n            self._check_named(origin)\n        elif queue",
        "        elif queue",
        tests=(T + "test_an_unknown_name_is_refused_at_the_call_with_the_names_there_are",),
    ),
    Mutant(
        "origins: an older tocsin may open a store that has such jobs",
        "actors/scheduler/state/scheduler_state.py",
        "        if job.extras is not None:\n            self.use_flow()\n",
        "",
        tests=(T + "test_a_store_gets_its_layout_with_the_first_job_that_names_an_origin",),
    ),
)
