"""Breakages of the audit log and of undo."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

AUDIT = "tests/actors/scheduler/test_audit.py::"
UNDO = "tests/actors/scheduler/test_undo.py::"
ROWS = "tests/actors/scheduler/test_undo_rows.py::"
BOTH_WAYS = (ROWS + "test_an_action_and_its_undo_leave_nothing_behind",)
LIMITS = "tests/actors/scheduler/test_undo_at_its_limits.py::"

UNDOING = (
    Mutant(
        "undo: however many actions are to be forgotten, it is done in one turn",
        "actors/scheduler/transitions/acts.py",
        "    if turn.is_full:\n        put_act",
        "    if False:\n        put_act",
        tests=(LIMITS + "test_what_is_forgotten_at_one_instant_fits_into_commits",),
    ),
    Mutant(
        "timers: however many days are to be forgotten, it is done in one turn",
        "actors/scheduler/actor/expiry.py",
        "    if turn.is_full:\n        turn.state.put_timer(turn.now, kind, day)",
        "    if False:\n        turn.state.put_timer(turn.now, kind, day)",
        tests=(LIMITS + "test_what_is_forgotten_at_one_instant_fits_into_commits",),
    ),
    Mutant(
        "undo: each page waits for its caller, also where nobody drives it",
        "actors/scheduler/transitions/undo.py",
        "await page(turn, action_id, 0)",
        "await page(turn, action_id)",
        tests=(LIMITS + "test_an_undo_that_nobody_drives_ends_soon",),
    ),
    Mutant(
        "undo: it ends where its day of the log is dropped",
        "actors/scheduler/transitions/undo.py",
        '    noted = kept or AuditRow(ms_of(undo_id), "undo", PYTHON, row.undoes)',
        "    if kept is None:\n        return None\n    noted = kept",
        tests=(LIMITS + "test_an_undo_ends_though_its_day_of_the_log_is_dropped_meanwhile",),
    ),
    Mutant(
        "undo: a job that comes back sets the cap of its pool again",
        "actors/scheduler/transitions/apply.py",
        "    if job.pool not in state.lines.pools:",
        "    if True:",
        tests=(LIMITS + "test_what_comes_back_leaves_a_pool_as_who_came_later_set_it",),
    ),
    Mutant(
        "undo: what was too much is kept anew from the middle on",
        "actors/scheduler/transitions/acts.py",
        "row is None and noted.changed > 0",
        "False",
        tests=(LIMITS + "test_of_an_action_over_many_turns_all_is_kept_or_none",),
    ),
    Mutant(
        "audit: what changes nothing is noted, too",
        "actors/scheduler/transitions/audit.py",
        "if by is not None and changed:",
        "if by is not None:",
        tests=(AUDIT + "test_what_changes_nothing_or_is_refused_leaves_no_row",),
    ),
    Mutant(
        "audit: what apps do all day is noted",
        "actors/scheduler/client/changes.py",
        "self._person = who if who.person else None",
        "self._person = who",
        tests=(AUDIT + "test_an_app_cancels_and_moves_its_jobs_unnoted_and_a_person_does_not",),
    ),
    Mutant(
        "audit: a token that may schedule is a person's",
        "actors/http/asked_by.py",
        'visit.token is not None and "schedule" not in visit.token.scopes',
        "visit.token is not None",
        tests=(
            "tests/http/test_audit_routes.py"
            "::test_a_token_that_may_not_schedule_is_an_operators_and_what_it_does_is_noted",
        ),
    ),
    Mutant(
        "audit: a definition that stays the same is noted",
        "actors/scheduler/schedules/change.py",
        " if before.get(one.name) != one.cursor.revision]",
        "]",
        tests=(AUDIT + "test_whoever_changes_a_definition_is_noted_and_the_same_again_is_not",),
    ),
    Mutant(
        "audit: what a registration removed is not noted",
        "actors/scheduler/schedules/register.py",
        '            audit.note(turn, by, "schedules.delete", one.name, {"owner": owner, "prune": True})\n',
        "            pass\n",
        tests=(AUDIT + "test_a_registration_is_noted_if_it_changed_something",),
    ),
    Mutant(
        "audit: an app's user is asked for a text that nobody keeps",
        "actors/http/asked_by.py",
        "return action not in OF_PEOPLE or _operates_only(visit)",
        "return True",
        tests=("tests/http/test_rotation.py::test_only_what_keeps_who_asked_asks_a_user_for_its_text",),
    ),
    Mutant(
        "audit: the log is kept for ever",
        "actors/scheduler/transitions/audit.py",
        "    if day != turn.state.days.get(AUDIT):\n",
        "    if False:\n",
        tests=(AUDIT + "test_whole_days_are_dropped_and_the_rest_stays",),
    ),
    Mutant(
        "audit: a pool that goes on is still said to be paused by somebody",
        "actors/scheduler/transitions/pools.py",
        "return Pause(turn.now, by) if paused else None",
        "return Pause(turn.now, by) if paused else pause",
        tests=(AUDIT + "test_who_paused_a_pool_and_an_instance_and_since_when",),
    ),
    Mutant(
        "audit: a process that follows does not say who asked",
        "actors/sharing/remote_port.py",
        "values(args, named), self._who)",
        "values(args, named), None)",
        tests=(
            "tests/actors/sharing/test_following.py::test_the_audit_log_names_who_asked_in_whichever_process_they_did",
        ),
    ),
    Mutant(
        "undo: an id that is taken is written over",
        "actors/scheduler/transitions/undo.py",
        '        return "id_taken"\n    await restore(',
        "        pass\n    await restore(",
        tests=(UNDO + "test_a_running_job_never_comes_back_and_a_taken_id_is_left_alone",),
    ),
    Mutant(
        "undo: a job that ran when it was cancelled comes back",
        "actors/scheduler/transitions/pools.py",
        "if done.was_running:",
        "if False:",
        tests=(UNDO + "test_a_running_job_never_comes_back_and_a_taken_id_is_left_alone",),
    ),
    Mutant(
        "undo: a retried letter is dead again although it has started",
        "actors/scheduler/transitions/undo.py",
        "    if not waits or known.at.attempt != trash.dead.at.attempt:",
        "    if False:",
        tests=(UNDO + "test_letters_of_a_bulk_retry_that_have_not_started_are_dead_again",),
    ),
    Mutant(
        "undo: the bulk retry goes on",
        "actors/scheduler/transitions/undo.py",
        "        stopped = await redrive.stop(turn, action_id) or stopped",
        "        pass",
        tests=(UNDO + "test_letters_of_a_bulk_retry_that_have_not_started_are_dead_again",),
    ),
    Mutant(
        "undo: a pool is set although somebody has changed it since",
        "actors/scheduler/transitions/undo.py",
        "    if state.lines.pools.get(name) != left:",
        "    if False:",
        tests=(UNDO + "test_a_pool_is_set_as_it_was_unless_somebody_changed_it_since",),
    ),
    Mutant(
        "undo: what is kept is kept for ever",
        "actors/scheduler/transitions/undo.py",
        "            await acts.forget(turn, action_id, row)",
        "            pass",
        tests=(UNDO + "test_ten_minutes_later_it_is_too_late_and_nothing_is_kept",),
    ),
    Mutant(
        "undo: only the first page is forgotten",
        "actors/scheduler/transitions/acts.py",
        "    if any(len(rows) == PAGE for rows in found):",
        "    if False:",
        tests=(UNDO + "test_ten_minutes_later_it_is_too_late_and_nothing_is_kept",),
    ),
    Mutant(
        "undo: one that nobody drives stands still",
        "actors/scheduler/transitions/undo.py",
        "            await page(turn, action_id, 0)",
        "            pass",
        tests=(UNDO + "test_an_undo_that_was_cut_off_by_a_crash_ends_by_itself",),
    ),
    Mutant(
        "undo: long args are not kept",
        "actors/scheduler/transitions/acts.py",
        "        for n, piece in enumerate(pieces):",
        "        for n, piece in enumerate(pieces[:0]):",
        tests=(UNDO + "test_jobs_that_were_cancelled_stand_where_they_stood",),
    ),
    Mutant(
        "undo: the slot of an occurrence forgets when it was decided",
        "actors/scheduler/transitions/undo.py",
        "        turn.state.storage.put(key, trash.slot)",
        "        pass",
        tests=BOTH_WAYS,
    ),
    Mutant(
        "undo: the result of a job that has not ended stays",
        "actors/scheduler/transitions/apply.py",
        "            state.drop_timer(row.until, RESULT, job.id)",
        "            pass",
        tests=BOTH_WAYS,
    ),
    Mutant(
        "undo: what is put back is not kept, so there is no way back",
        "actors/scheduler/transitions/undo.py",
        '    acting.keep(job_id, TrashRow("restored", job.incarnation))',
        "    pass",
        tests=(UNDO + "test_an_undo_is_an_action_and_is_undone_in_its_turn",),
    ),
    Mutant(
        "undo: an action goes on although it was undone",
        "actors/scheduler/transitions/acts.py",
        "    acting.is_undone = acting.is_undone or bool(noted.undone_by)",
        "    acting.is_undone = False",
        tests=(UNDO + "test_an_action_that_is_undone_while_it_goes_on_changes_nothing_more",),
    ),
    Mutant(
        "undo: what is too much is kept all the same",
        "actors/scheduler/transitions/acts.py",
        "        if row.kept >= KEPT_MOST or size > KEPT_BYTES:",
        "        if False:",
        tests=(UNDO + "test_what_is_too_much_is_not_kept_and_that_is_said",),
    ),
    Mutant(
        "undo: one that puts nothing back counts as an undo",
        "actors/scheduler/transitions/undo.py",
        "    if not now.done:\n",
        "    if False:\n",
        tests=(UNDO + "test_an_undo_that_puts_nothing_back_is_not_in_the_log_and_nothing_counts_as_undone",),
    ),
    Mutant(
        "undo: one that stopped a bulk retry is not in the log",
        "actors/scheduler/transitions/undo.py",
        '    if not noted.said.get("stopped"):\n',
        "    if True:\n",
        tests=(UNDO + "test_an_undo_that_only_stops_a_bulk_retry_is_in_the_log",),
    ),
    Mutant(
        "undo: what belongs to no action is not found",
        "actors/scheduler/integrity/invariants_of_acts.py",
        "            if action not in known:",
        "            if False:",
        tests=(ROWS + "test_what_is_kept_without_an_action_or_a_timer_is_found_and_mended",),
    ),
)
