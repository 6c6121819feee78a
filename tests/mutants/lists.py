"""Breakages of lists, bulk retries, schedules, the outbox, and the server before them."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

T = "tests/actors/scheduler/"
R = "tests/actors/scheduler/recurring/"
OUT = "tests/actors/outbox/"

LISTS = (
    Mutant(
        "lists: a list by path goes on though all of that path were found",
        "actors/scheduler/queries/listing.py",
        "            if pager.may_have_all and ",
        "            if False and ",
        tests=(T + "test_lists_by_path.py::test_a_list_by_path_ends_where_its_count_is_reached",),
    ),
    Mutant(
        "lists: a list by path ends by a count that is over",
        "actors/scheduler/queries/listing.py",
        '        rows.get(count) == b"%d" % len(taken)\n        and all(',
        "        all(",
        tests=(T + "test_lists_by_path.py::test_a_list_by_path_that_changes_meanwhile_misses_nothing_that_stays",),
    ),
    Mutant(
        "lists: a list by path counts jobs that have ended meanwhile",
        "actors/scheduler/queries/listing.py",
        "now is not None and now.incarnation == job.incarnation for now, job",
        "True for now, job",
        tests=(T + "test_lists_by_path.py::test_a_list_by_path_that_changes_meanwhile_misses_nothing_that_stays",),
    ),
    Mutant(
        "redrive: the same letter is matched by two",
        "actors/scheduler/transitions/redrive.py",
        "        if by is None:\n",
        "        if True:\n",
        tests=(T + "test_redrives.py::test_the_same_call_again_is_told_which_one_goes_on_and_starts_nothing",),
    ),
    Mutant(
        "redrive: two of one pool have the sum of their rates",
        "actors/scheduler/transitions/redrive.py",
        "    if waits_for(redrive_id, row, await _running(turn)) is not None:\n",
        "    if False:\n",
        tests=(T + "test_redrives.py::test_filters_that_overlap_match_each_letter_once_and_share_the_pace",),
    ),
    Mutant(
        "redrive: two that were counted at the same time both begin",
        "actors/scheduler/transitions/redrive.py",
        "    if (await _running(turn)).keys() - set(known):\n",
        "    if False:\n",
        tests=(T + "test_redrives.py::test_two_calls_at_the_same_time_make_one",),
    ),
    Mutant(
        "labels: a job that waits has no rows of its labels",
        "actors/scheduler/state/scheduler_state.py",
        "            self.labels.wait(job, due)\n",
        "            pass\n",
        tests=(T + "test_lists_by_index.py::test_a_page_by_label_is_full_and_loads_only_jobs_of_that_label",),
    ),
    Mutant(
        "labels: a dead job keeps the rows of a live one",
        "actors/scheduler/state/labels.py",
        "        self.erase(job)\n        for key, value in dead_rows",
        "        for key, value in dead_rows",
        tests=(T + "test_lists_by_index.py::test_every_list_is_what_a_walk_over_all_jobs_would_give",),
    ),
    Mutant(
        "health: a place without a job is told of as a job",
        "actors/scheduler/model/lost.py",
        '    if family == b"line" and value == NO_JOB:',
        "    if False:",
        tests=(
            T
            + "test_health.py::test_jobs_and_schedules_that_cannot_be_read_any_more_are_told_until_their_rows_are_gone",
        ),
    ),
    Mutant(
        "schedules: a slot on time overtakes those that are late",
        "actors/scheduler/schedules/fire.py",
        "    return at, max(at, after) if after > due else None\n",
        "    return at, None\n",
        tests=(R + "test_slot_order.py::test_slots_that_come_while_a_catch_up_is_spread_wait_for_it",),
    ),
    Mutant(
        "schedules: after a step back the rest of a catch-up overtakes what was spread",
        "actors/scheduler/state/spread.py",
        "earlier <= now + DAY_MS + SPREAD_MS else 0",
        "earlier <= now + SPREAD_MS else 0",
        tests=(R + "test_slot_order.py::test_a_catch_up_that_a_step_back_interrupts_goes_on_in_order",),
    ),
    Mutant(
        "schedules: one that is taken back from a wrong clock waits for it again later",
        "actors/scheduler/schedules/recompute.py",
        "run=None, starts_from=None,",
        "run=None,",
        tests=(
            R + "test_slot_order.py::test_after_more_than_a_day_back_a_schedule_does_not_wait_for_the_clock_of_before",
        ),
    ),
    Mutant(
        "schedules: one whose slot fails is never set aside",
        "actors/scheduler/schedules/process_due.py",
        "            failed[seen.one.version] = failure.why\n",
        "",
        tests=(R + "test_fault_isolation.py::test_a_slot_that_fails_sets_its_schedule_aside_and_all_others_go_on",),
    ),
    Mutant(
        "schedules: one that is set aside is forgotten before that is on disk",
        "actors/scheduler/schedules/process_due.py",
        "            turn.ctx.after_commit(turn.state.occurrences.forget_failed, one.version)\n",
        "            turn.state.occurrences.forget_failed(one.version)\n",
        tests=(R + "test_fault_isolation.py::test_a_slot_that_fails_sets_its_schedule_aside_and_all_others_go_on",),
    ),
    Mutant(
        "schedules: what a schedule that is set aside held back is lost",
        "actors/scheduler/schedules/process_due.py",
        "if one.cursor.queued is not None and one.version not in failed]",
        "if one.cursor.queued is not None]",
        tests=(R + "test_fault_isolation.py::test_a_slot_held_back_that_fails_is_still_held_back",),
    ),
    Mutant(
        "schedules: a catch-up that meets a live run is dropped",
        "actors/scheduler/schedules/fire.py",
        '        return fire.catch_up or one.definition.overlap == "queue" or one.runs_past\n',
        '        return one.definition.overlap == "queue" or one.runs_past\n',
        tests=(R + "test_coalesced_slots.py::test_a_catch_up_that_meets_a_live_run_starts_when_that_ends",),
    ),
    Mutant(
        "tally: what a gap of the clock leaves out is not counted",
        "actors/cron/tally.py",
        "            found += stands_in and not tally.between(change.first_wall - 1, change.first_wall)\n",
        "",
        tests=("tests/actors/cron/test_tally.py::test_around_changes_of_the_clock",),
    ),
    Mutant(
        "connections: nobody makes room for a new one",
        "src/tocsin/cli/connections.py",
        "        for among in self._dawdling.values():\n            for one in among:\n",
        "        for among in self._dawdling.values():\n            for one in ():\n",
        tests=(
            "tests/cli/test_connections.py::test_a_flood_is_bounded_and_jobs_are_scheduled_and_called_back_meanwhile",
        ),
    ),
    Mutant(
        "endpoint: who leaves before its request is read leaves an app without an answer",
        "actors/http/endpoint.py",
        "            response = unheard()  # nothing was done\n",
        "            return\n",
        tests=(
            "tests/http/test_disconnected_callers.py::test_who_leaves_before_its_request_is_there_is_answered_to_the_app_around",
        ),
    ),
    Mutant(
        "outbox: what is marked in a file is not synced",
        "actors/outbox/databases.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = NORMAL",
        tests=(OUT + "test_lost_connections.py::test_what_is_marked_in_a_file_is_synced_before_it_is_submitted",),
    ),
    Mutant(
        "outbox: who listens is not asked whether it still does",
        "actors/outbox/databases.py",
        "            if now >= self._probe_at:\n",
        "            if False:\n",
        tests=(
            OUT
            + "test_lost_connections.py::test_rows_are_brought_within_30_seconds_though_all_connections_were_dropped",
        ),
    ),
    Mutant(
        "outbox: a connection that fell silent is given back in order",
        "actors/outbox/databases.py",
        "        connection.terminate()\n        await self._pool.expire_connections()\n",
        "        await self._pool.expire_connections()\n",
        tests=(OUT + "test_lost_connections.py::test_a_call_on_a_silent_connection_that_is_given_up_ends_at_once",),
    ),
    Mutant(
        "outbox: others that lay idle are used though they are as silent",
        "actors/outbox/databases.py",
        "        connection.terminate()\n        await self._pool.expire_connections()\n",
        "        connection.terminate()\n",
        tests=(OUT + "test_lost_connections.py::test_a_call_on_a_silent_connection_that_is_given_up_ends_at_once",),
    ),
    Mutant(
        "outbox: nobody asks who listens between two looks",
        "actors/outbox/drain.py",
        "            if left > PROBE_S and not self._news.is_set():\n",
        "            if False:\n",
        tests=(
            OUT
            + "test_lost_connections.py::test_rows_are_brought_within_30_seconds_though_all_connections_were_dropped",
        ),
    ),
    Mutant(
        "outbox: a database is waited for without a limit",
        "actors/outbox/patience.py",
        "asyncio.wait([asked, late], return_when",
        "asyncio.wait([asked], return_when",
        tests=(OUT + "test_lost_connections.py::test_a_database_without_an_answer_is_given_up_at_its_limit",),
    ),
)
