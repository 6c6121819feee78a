"""Breakages of what several processes on one store rely on."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

F = "tests/actors/sharing/test_following.py::"
T = "tests/actors/sharing/test_take_over.py::"
M = "tests/actors/sharing/test_odd_moments.py::"
N = "tests/actors/sharing/test_neighbour.py::"
O = "tests/actors/sharing/test_operations.py::"  # noqa: E741
P = "tests/processes/test_sharing.py::"

SHARING = (
    Mutant(
        "sharing: a submit whose answer was lost is sent again without a look",
        "actors/sharing/remote_port.py",
        "                if (await self._accepted([named]))[0]:\n",
        "                if False:\n",
        tests=(T + "test_a_submit_is_done_once_wherever_the_wire_is_cut",),
    ),
    Mutant(
        "sharing: a submit whose answer was lost counts as done",
        "actors/sharing/remote_port.py",
        "                if (await self._accepted([named]))[0]:\n",
        "                if True:\n",
        tests=(T + "test_a_submit_is_done_once_wherever_the_wire_is_cut",),
    ),
    Mutant(
        "sharing: every call whose answer was lost is sent again",
        "actors/sharing/caller.py",
        "if gone.sent and not _may_repeat(trip):",
        "if False:",
        tests=(T + "test_a_change_that_may_have_been_done_says_whether_it_may_be_repeated",),
    ),
    Mutant(
        "sharing: any token is right",
        "actors/sharing/holder.py",
        'return bool(self._token) and hmac.compare_digest(self._token, token.encode("utf-8", "replace"))',
        "return True",
        tests=(F + "test_a_stranger_without_the_token_is_turned_away",),
    ),
    Mutant(
        "sharing: processes of other users are let in",
        "actors/sharing/neighbour.py",
        "return found is None or found[1] in (os.geteuid(), 0)",
        "return True",
        tests=(N + "test_only_the_same_user_and_root_are_let_in",),
    ),
    Mutant(
        "sharing: a busy holder is killed",
        "actors/sharing/watch.py",
        "stopped = stopped + 1 if is_stopped else 0",
        "stopped = stopped + 1",
        tests=(T + "test_a_holder_that_is_stopped_is_ended_and_one_that_is_busy_never",),
    ),
    Mutant(
        "sharing: a holder that was stopped by a signal is waited for",
        "actors/sharing/watch.py",
        "            told = not _end(holder)\n            stopped = silent = 0\n",
        "            stopped = silent = 0\n",
        tests=(T + "test_a_holder_that_is_stopped_is_ended_and_one_that_is_busy_never",),
    ),
    Mutant(
        "sharing: a process that cannot be seen is taken for the one that the lock file names",
        "actors/sharing/neighbour.py",
        "self._hold(noted if found is None else found[0])",
        "self._hold(noted)",
        tests=(N + "test_a_process_of_another_namespace_is_not_seen_and_never_killed",),
    ),
    Mutant(
        "sharing: an answer that nobody hears any more is kept",
        "actors/sharing/link.py",
        "        elif operation.undo is not None:\n            self._undo(operation, body)\n",
        "",
        tests=(F + "test_a_claim_that_is_cancelled_gives_back_what_it_was_about_to_get",),
    ),
    Mutant(
        "sharing: a holder that stops keeps those who wait",
        "actors/sharing/holder.py",
        "            if operation.may_wait:\n                task.cancel()\n",
        "            pass\n",
        tests=(T + "test_a_holder_that_stops_in_order_hands_over_and_no_call_notices",),
    ),
    Mutant(
        "sharing: a holder that stops hands over before its callbacks have ended",
        "actors/life.py",
        "            await self._service.rest(self._drain_s)  # callers",
        "            pass  # callers",
        tests=(T + "test_callbacks_in_flight_end_before_the_holder_hands_over_and_callers_do_not_notice",),
    ),
    Mutant(
        "sharing: a process that is configured differently does not wait for others",
        "actors/sharing/sharing.py",
        "        if self._clock.monotonic() < self._behind_until:\n",
        "        if False:\n",
        tests=(T + "test_a_process_that_is_configured_differently_takes_over_last_but_does",),
    ),
    Mutant(
        "sharing: a wait begins anew at the next holder",
        "actors/sharing/operations.py",
        "left[place] = type(left[place])(max(left[place] - seconds * per_second, 0))",
        "pass",
        tests=(O + "test_a_call_that_has_waited_waits_less_at_the_next_holder",),
    ),
    Mutant(
        "sharing: a host that was opened before a fork has one name in both processes",
        "storage/sqlite/provider.py",
        "        if self._made_by != os.getpid():\n",
        "        if False:\n",
        tests=(P + "test_a_host_may_be_opened_before_a_fork_and_entered_after_it",),
    ),
    Mutant(
        "sharing: a forked process keeps the link of its parent open",
        "actors/sharing/wire.py",
        "    release(each.fileno() for each in list(_connected))\n",
        "    pass\n",
        tests=(P + "test_a_fork_of_an_open_host_has_no_part_in_it",),
    ),
    Mutant(
        "sharing: the error of a user's own actor is taken for the end of the holder",
        "actors/sharing/caller.py",
        "                if way.ended.is_set():  # it was",
        "                way.ended.set()\n                if way.ended.is_set():  # it was",
        tests=(M + "test_an_own_actor_that_meets_a_closed_host_is_called_once",),
    ),
    Mutant(
        "sharing: a follower that stops does not wait for jobs that are on their way to it",
        "actors/sharing/follower.py",
        "            await self._link.until_answered()\n",
        "            pass\n",
        tests=(M + "test_a_follower_that_stops_gives_back_what_is_on_its_way_to_it",),
    ),
    Mutant(
        "sharing: a holder that was stopped while its door was closed is waited for",
        "actors/sharing/sharing.py",
        "                    await closed_door.look()\n",
        "",
        tests=(M + "test_a_holder_that_is_stopped_while_its_door_is_closed_is_ended_and_no_other",),
    ),
    Mutant(
        "sharing: a process that the lock file names is ended though it has no lock",
        "actors/sharing/neighbour.py",
        "        if _has_lock(noted, lock):",
        "        if True:",
        tests=(N + "test_only_a_process_that_has_the_lock_is_held_for_who_has_it",),
    ),
    Mutant(
        "sharing: a follower that met an unexpected error tries no more",
        "actors/sharing/sharing.py",
        "            except Exception as error:  # whatever",
        "            except TocsinError as error:  # whatever",
        tests=(M + "test_a_process_that_met_an_unexpected_error_still_takes_the_store_over",),
    ),
    Mutant(
        "sharing: a process that failed to read its store keeps the lock",
        "actors/scheduler/actor/stored_clocks.py",
        "            await host.stop(0.0)  # else",
        "            pass  # else",
        tests=(M + "test_a_store_that_cannot_be_read_at_a_take_over_is_taken_later",),
    ),
    Mutant(
        "stores: a start that is refused leaves one more descriptor open",
        "storage/sqlite/identity.py",
        "            left_open = _left_open.pop((found.st_dev, found.st_ino), None)",
        "            left_open = None",
        tests=(
            "tests/storage/test_replaced_files.py::test_a_start_that_is_refused_again_and_again_uses_up_no_descriptors",
        ),
    ),
    Mutant(
        "sharing: what a process had sent before it heard that it is turned away is noise in the log",
        "actors/sharing/holder.py",
        "        if self._turned_away:\n",
        "        if False:\n",
        tests=(M + "test_a_process_that_is_turned_away_is_no_noise_in_the_log_of_the_holder",),
    ),
    Mutant(
        "sharing: calls that waited at the last holder fail where the next one has no room for all at once",
        "actors/sharing/caller.py",
        "                if not waited:\n",
        "                if True:\n",
        tests=(M + "test_more_waiting_claims_than_a_scheduler_takes_at_once_wait_on_at_the_next_holder",),
    ),
)
