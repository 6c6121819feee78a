"""Breakages of what keeps two owners apart on PostgreSQL, which tests on real servers must catch."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

STALE = "tests/processes/test_cluster_stale_owner.py::test_no_write_of_a_stale_owner_comes_through"

W = "tests/actors/cluster/test_whole_hosts.py::"
L = "tests/actors/scheduler/test_lanes.py::"
C = "tests/actors/test_store_clock.py::"

CLUSTERS = (
    Mutant(
        "cluster: a commit compares its slots without locking them",
        "storage/postgres/statements.py",
        "WHERE s.owner = $4 ORDER BY s.slot FOR NO KEY UPDATE OF s)",
        "WHERE s.owner = $4 ORDER BY s.slot)",
        tests=(STALE,),
    ),
    Mutant(
        "cluster: a commit of an owner that comes a second time is written again",
        "storage/postgres/statements.py",
        "ON s.slot = c.slot AND s.epoch = c.epoch AND s.seq = c.seq",
        "ON s.slot = c.slot AND s.epoch = c.epoch",
        tests=(STALE,),
    ),
    Mutant(
        "cluster: a commit does not ask whose its slots are",
        "storage/postgres/statements.py",
        "WHERE s.owner = $4 ORDER BY s.slot FOR NO KEY UPDATE OF s)",
        "WHERE $4::uuid IS NOT NULL ORDER BY s.slot FOR NO KEY UPDATE OF s)",
        tests=(STALE,),
    ),
    Mutant(
        "clusters: a host that stops drains its callbacks before it hands over",
        "actors/life.py",
        "        if others:\n",
        "        if others:\n            await self._service.rest(self._drain_s)\n",
        tests=(W + "test_a_host_that_stops_hands_over_at_once_and_its_callbacks_end_in_peace",),
    ),
    Mutant(
        "clusters: the last host leaves the ends of its callbacks in the mail",
        "actors/life.py",
        "            await self._service.rest(self._drain_s)\n            await self._leave(cluster, began)\n",
        "            await self._leave(cluster, began)\n",
        tests=(W + "test_callbacks_of_the_last_host_end_before_it_lets_go_and_nothing_is_left_for_the_next",),
    ),
    Mutant(
        "clusters: who waits at a host is not told that the scheduler goes",
        "actors/scheduler/inflight/inflight.py",
        "        self.waiting_claims.refuse(error)\n",
        "",
        tests=(W + "test_who_waits_at_a_host_that_is_drained_goes_on_waiting_at_the_next",),
    ),
    Mutant(
        "clusters: a host that starts nothing has a share beside others",
        "actors/cluster/composition.py",
        "weight=int(dispatch)",
        "weight=1",
        tests=(W + "test_a_host_that_starts_nothing_owns_nothing_beside_others_and_all_when_it_is_alone",),
    ),
    Mutant(
        "clusters: a host goes by its own clock",
        "actors/runtime/store_clock.py",
        "return shown - self.ahead_ms",
        "return shown",
        tests=(
            W + "test_hosts_whose_clocks_are_off_agree_on_what_is_due_and_say_so",
            C + "test_a_clock_that_is_off_is_put_right_from_the_first_look_on",
        ),
    ),
    Mutant(
        "clusters: ends that cannot be sent on are forgotten",
        "actors/scheduler/inflight/lanes.py",
        "            self.not_settled(sent)\n",
        "",
        tests=(L + "test_attempts_that_end_when_another_host_has_their_scheduler_are_sent_there_and_live_until_then",),
        may_hang=True,
    ),
    Mutant(
        "clusters: all hosts prove that they write at one name",
        "actors/heartbeat.py",
        "        if self._shared is None or self._is_here(self._name):\n",
        "        if True:\n",
        tests=(W + "test_every_host_proves_that_it_writes_and_status_and_metrics_tell_of_all",),
    ),
)
