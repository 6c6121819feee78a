"""Breakages of `run_due`, `tocsin run --once` and `Worker.run_once`."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

R = "tests/actors/scheduler/test_run_due.py::"
W = "tests/dispatch/worker/test_run_once.py::"
C = "tests/cli/test_run.py::"
RUNS = "actors/due_runs.py"

ONCE = (
    Mutant(
        "once: a host that dispatches nothing by itself rings alarms",
        "actors/runtime/host.py",
        "        if self._rings:\n",
        "        if True:\n",
        tests=(R + "test_a_host_that_does_not_dispatch_sends_what_is_due_in_run_due_only",),
        may_hang=True,
    ),
    Mutant(
        "once: a host that dispatches nothing by itself sends what is due when it is scheduled",
        "actors/scheduler/inflight/lanes_to.py",
        "room <= 0 or self.permits.company.closed or",
        "room <= 0 or",
        tests=(R + "test_nothing_of_a_host_that_does_not_dispatch_stays_in_memory_for_jobs_that_wait",),
    ),
    Mutant(
        "once: what became due between runs is not rung",
        "actors/scheduler/inflight/lanes_to.py",
        "            return True  # by the alarm",
        "            return False  # by the alarm",
        tests=(R + "test_a_host_that_does_not_dispatch_sends_what_is_due_in_run_due_only",),
    ),
    Mutant(
        "once: who stood in line at the end of a run is forgotten by the next one",
        "actors/scheduler/actor/service.py",
        "                self.host.alarms.set(actor_of(name), self.clock.now_ms())\n",
        "                pass\n",
        tests=(R + "test_an_origin_that_is_down_ends_the_run_and_is_trouble",),
    ),
    Mutant(
        "once: a run ends with callbacks in flight",
        "actors/runtime/host.py",
        "            if busy:\n",
        "            if busy and rings:\n",
        tests=(R + "test_on_a_host_that_dispatches_it_waits_for_what_is_in_flight",),
        may_hang=True,
    ),
    Mutant(
        "once: what is due at the instant of until is left",
        RUNS,
        "next_ms > end_ms:",
        "next_ms >= end_ms:",
        tests=(R + "test_until_waits_for_what_becomes_due_and_no_longer",),
    ),
    Mutant(
        "once: jobs begin after max_seconds",
        RUNS,
        "                time_over = True\n                self._end()\n",
        "                time_over = True\n",
        tests=(R + "test_after_max_seconds_nothing_more_begins",),
    ),
    Mutant(
        "once: the first of two runs to end closes the gates",
        RUNS,
        "        if not self._under_way and not self._dispatch:",
        "        if not self._dispatch:",
        tests=(R + "test_two_runs_at_once_share_the_work_and_the_longer_one_goes_on",),
        may_hang=True,
    ),
    Mutant(
        "once: a hook that is repeated for ever is waited for",
        "actors/scheduler/actor/service.py",
        "set() if self._ticks is None else self._ticks.failing",
        "set()",
        tests=(R + "test_a_hook_that_fails_for_ever_holds_no_run_up",),
        may_hang=True,
    ),
    Mutant(
        "once: an open circuit is no trouble",
        RUNS,
        "any(one.code not in NO_TROUBLE for one in because)",
        "False",
        tests=(R + "test_an_origin_that_is_down_ends_the_run_and_is_trouble",),
    ),
    Mutant(
        "once: a held store is a store that cannot be used",
        "src/tocsin/cli/run.py",
        "    except StoreLocked as error:\n        raise Held(",
        "    except StoreLocked as error:\n        raise StoreUnusable(",
        tests=(C + "test_a_run_beside_a_server_or_another_run_does_nothing_and_is_exit_code_7",),
    ),
    Mutant(
        "once: a worker leaves what becomes due while its jobs run",
        "dispatch/worker/worker.py",
        "                if not running:\n                    return\n",
        "                return\n",
        tests=(W + "test_jobs_that_become_due_while_others_run_are_claimed_too",),
    ),
    Mutant(
        "once: a worker runs only once in its life",
        "dispatch/worker/worker.py",
        "            if not self._stopped:\n                self._life",
        "            if False:\n                self._life",
        tests=(W + "test_without_anything_due_it_ends_at_once_and_may_be_called_again",),
    ),
)
