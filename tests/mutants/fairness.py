"""Breakages of turns between shard keys."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

T = "tests/actors/scheduler/test_fair_pools.py::"
U = "tests/actors/scheduler/queues/test_fair_queues.py::"
SHARES = "actors/scheduler/state/shares.py"

FAIRNESS = (
    Mutant(
        "fairness: a key that comes back has all turns that it missed",
        SHARES,
        "max(self._had.get(shard, 0), level)",
        "self._had.get(shard, 0)",
        tests=(T + "test_a_key_that_comes_back_has_no_turns_saved_up_and_none_to_pay_back",),
    ),
    Mutant(
        "fairness: keys that come are level with those that wait for ever",
        SHARES,
        "self._level + ONE // max(self._weight, 1)",
        "self._level",
        tests=(T + "test_keys_that_come_without_end_do_not_keep_a_waiting_one_from_its_turn",),
    ),
    Mutant(
        "fairness: all keys weigh the same",
        SHARES,
        "return ONE // self.weights.get(shard, 1)",
        "return ONE",
        tests=(T + "test_a_key_with_a_weight_has_so_many_turns_where_others_have_one",),
    ),
    Mutant(
        "fairness: a start costs its key nothing",
        SHARES,
        "self._had[shard] = had + self.cost(shard)",
        "self._had[shard] = had",
        tests=(T + "test_the_first_jobs_of_a_key_do_not_wait_for_the_backlog_of_another",),
    ),
    Mutant(
        "fairness: jobs of a key that ran before a crash do not count",
        "actors/scheduler/state/leases.py",
        "self.lines.use_rotas().hold(lease)",
        "pass",
        tests=(T + "test_the_cap_of_a_key_holds_over_a_crash",),
    ),
    Mutant(
        "fairness: a key that is at its cap is never looked at again",
        "actors/scheduler/state/rotas.py",
        "for line in self._held_back.pop(one, ()):",
        "for line in list[ShardLine]():",
        tests=(T + "test_no_more_jobs_of_a_key_run_at_once_than_its_cap",),
    ),
    Mutant(
        "fairness: a place that is taken in turn is not owed",
        "actors/scheduler/transitions/fair_choice.py",
        "                heapq.heappush(self.owed, job[0])",
        "                pass",
        tests=(T + "test_a_fair_pool_takes_nothing_from_others_when_lanes_are_few",),
    ),
    Mutant(
        "fairness: nobody is woken to move the jobs that stand elsewhere",
        "actors/scheduler/actor/end_of_turn.py",
        "            due = more = True\n",
        "            more = True\n",
        tests=(T + "test_a_move_between_lines_goes_on_after_a_crash_at_any_page",),
    ),
    Mutant(
        "fairness: jobs that the cap of their key holds are late",
        "actors/scheduler/queries/standing.py",
        "return flow is not None and flow.fair and flow.per_key is not None and running >= flow.per_key",
        "return False",
        tests=("tests/actors/scheduler/test_fair_pools_are_shown.py::test_why_tells_of_turns_and_of_the_cap_of_a_key",),
    ),
    Mutant(
        "fairness: a restart forgets which queues are fair",
        "actors/scheduler/state/rebuild.py",
        "state.lines.set_queue(key[6:].decode(), queue)",
        "pass",
        tests=(U + "test_a_restart_changes_nothing",),
    ),
    Mutant(
        "fairness: jobs of a fair queue that wait stay where they are when it becomes fair",
        "actors/scheduler/state/job_queues.py",
        "if self.use_rotas().set_queue(name, row):",
        "if self.use_rotas().set_queue(name, row) and False:",
        tests=(U + "test_it_is_switched_on_and_off_with_jobs_waiting",),
    ),
    Mutant(
        "fairness: callbacks of a fair pool go before its jobs of queues, whatever each key has had",
        "actors/scheduler/state/job_queues.py",
        "if other.next_turn < bucket.next_turn:",
        "if other.order < bucket.order:",
        tests=(T + "test_callbacks_and_jobs_of_queues_share_the_turns_of_their_pool",),
    ),
)
