"""Breakages of turns that several events share."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

R = "tests/actors/test_shared_turns.py::"
S = "tests/actors/scheduler/test_shared_turns.py::"
C = "tests/actors/scheduler/test_counts_per_job.py::"

TURNS = (
    Mutant(
        "shared turns: any number of events share one",
        "actors/runtime/line.py",
        "if len(group) == EVENTS_PER_TURN or isinstance(",
        "if isinstance(",
        tests=(R + "test_one_turn_is_shared_by_a_bounded_number_of_events",),
    ),
    Mutant(
        "shared turns: an event that may not share is passed",
        "actors/runtime/line.py",
        "isinstance(place, asyncio.Future) or not actor.may_share(place[0]):",
        "isinstance(place, asyncio.Future):",
        tests=(R + "test_an_event_that_may_not_share_ends_the_group_and_keeps_its_place",),
    ),
    Mutant(
        "shared turns: events whose turn failed share the next one",
        "actors/runtime/line.py",
        "            self._alone = len(group)\n",
        "            pass\n",
        tests=(R + "test_an_event_that_raises_costs_its_neighbours_a_turn_each_and_leaves_no_trace",),
        may_hang=True,
    ),
    Mutant(
        "shared turns: after a failure all events have turns of their own for good",
        "actors/runtime/line.py",
        "            self._alone -= 1\n",
        "            pass\n",
        tests=(R + "test_what_comes_behind_a_turn_that_raised_shares_turns_again",),
    ),
    Mutant(
        "shared turns: events without an answer are forgotten",
        "actors/runtime/activation.py",
        "                self._line.put_back(group[len(answers) :], alone=False)\n",
        "",
        tests=(R + "test_events_that_a_turn_leaves_unanswered_have_the_next_one",),
        may_hang=True,
    ),
    Mutant(
        "shared turns: events without an answer wait for an activation that is broken",
        "actors/runtime/activation.py",
        "            if len(answers) < len(group) and self.broken is None:\n",
        "            if len(answers) < len(group):\n",
        tests=(R + "test_events_left_unanswered_by_a_turn_whose_activation_breaks_are_not_left_waiting",),
        may_hang=True,
    ),
    Mutant(
        "shared turns: one answer each, also of a turn that answers none",
        "actors/runtime/activation.py",
        "if not 0 < len(answers) <= len(group):",
        "if len(answers) > len(group):",
        tests=(R + "test_an_actor_that_answers_none_of_the_events_it_was_given_gets_them_one_by_one",),
        may_hang=True,
    ),
    Mutant(
        "shared turns: one can be left, and its first half is done twice",
        "actors/runtime/activation.py",
        "        if self._shared:\n            raise TurnError(",
        "        if False:\n            raise TurnError(",
        tests=(R + "test_outside_is_refused_where_a_turn_is_shared",),
    ),
    Mutant(
        "shared turns: an error is shared while the activation breaks",
        "actors/runtime/activation.py",
        "self.broken if shared else error",
        "error",
        tests=(R + "test_an_event_that_raises_while_the_activation_breaks_does_not_share_its_error",),
    ),
    Mutant(
        "shared turns: a cancelled one cancels all its events",
        "actors/runtime/activation.py",
        "        if len(group) > 1 and self.broken is None:\n",
        "        if False:\n",
        tests=(R + "test_a_handler_that_cancels_itself_fails_alone",),
    ),
    Mutant(
        "shared turns: rows read ahead hide what the turn deletes",
        "actors/runtime/overlay.py",
        "key not in own.puts and key not in own.deletes:",
        "key not in own.puts:",
        tests=(R + "test_what_the_turn_writes_counts_more_than_what_it_read_ahead",),
    ),
    Mutant(
        "shared turns: a row that is not there is looked for again",
        "actors/runtime/overlay.py",
        "            read[key] = found.get(key)\n",
        "            if key in found:\n                read[key] = found[key]\n",
        tests=(R + "test_rows_read_ahead_cost_one_hop_for_the_whole_turn_and_none_of_the_next",),
    ),
    Mutant(
        "shared turns: one takes all events, however much it has written",
        "actors/scheduler/actor/scheduler_actor.py",
        " and not (answers and takes_no_more(turn)):\n",
        ":\n",
        tests=(S + "test_a_turn_takes_no_more_events_once_it_has_written_much",),
    ),
    Mutant(
        "shared turns: large submissions share them",
        "actors/scheduler/actor/shared_turns.py",
        "return len(jobs) <= JOBS_OF_AN_EVENT and not any(new.rest_of_args for new in jobs)",
        "return True",
        tests=(S + "test_large_submissions_share_no_turn",),
    ),
    Mutant(
        "shared turns: an instance that is removed takes submissions that share one",
        "actors/scheduler/actor/scheduler_actor.py",
        "return may_share(event) and not self._state.instance.erasing",
        "return may_share(event)",
        tests=(S + "test_nothing_shares_a_turn_while_the_instance_is_removed",),
    ),
    Mutant(
        "shared turns: a request with a key that is run again has nobody to write its answer",
        "actors/scheduler/inflight/renderers.py",
        "return self._waiting[number]",
        "return self._waiting.pop(number)",
        tests=(S + "test_answers_and_rows_are_those_of_turns_of_their_own",),
    ),
    Mutant(
        "shared turns: nothing is read ahead",
        "actors/scheduler/actor/scheduler_actor.py",
        "        await read_ahead(turn, sharing, self._inflight.completions.begin)\n",
        "",
        tests=(C + "test_32_callers_that_cancel_or_move_share_two_hops",),
    ),
    Mutant(
        "shared turns: jobs whose ids are taken are read one by one",
        "actors/scheduler/actor/shared_turns.py",
        "    if more := [",
        "    if False and [",
        also=(
            ("actors/scheduler/actor/shared_turns.py", "        await storage.prefetch(more)\n", "        pass\n"),
            ("actors/scheduler/actor/shared_turns.py", "if count > 1 for key", "if count > 99 for key"),
        ),
        tests=(C + "test_32_requests_with_a_key_share_one_hop_and_where_ids_are_taken_two",),
    ),
    Mutant(
        "an event alone reads its rows one after the other",
        "actors/scheduler/actor/scheduler_actor.py",
        "        if isinstance(event, READ_IN_STEPS):\n",
        "        if False:\n",
        tests=(C + "test_one_caller_alone_has_its_rows_in_one_hop",),
    ),
)
