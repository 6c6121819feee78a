"""Breakages of how hosts of a shared store serve each other's requests."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

ROUTING = "tests/actors/cluster/test_routing.py::"
LINKS = "tests/actors/cluster/test_peer_links.py::"
HTTP = "tests/actors/cluster/test_over_http.py::"
DONE = "tests/actors/test_calls_done_once.py::"

OF_ROUTING = (
    Mutant(
        "routing: a call that was done is not noted",
        "actors/runtime/done.py",
        "    layer.puts[key] = note = _encoded(answer)\n",
        "    note = _encoded(answer)\n",
        tests=(
            DONE + "test_a_call_that_comes_again_changes_nothing_also_in_another_activation",
            ROUTING + "test_mail_that_comes_again_is_done_once",
        ),
    ),
    Mutant(
        "routing: notes of calls are never forgotten",
        "actors/runtime/done.py",
        "        layer.deletes.add(old)\n",
        "        pass\n",
        tests=(DONE + "test_calls_are_forgotten_after_a_day_and_refused_from_then_on",),
    ),
    Mutant(
        "routing: a submission that arrives twice is refused the second time",
        "actors/scheduler/transitions/submit.py",
        "    if _is_same(new, holder):\n        return Scheduled(",
        "    if new.job.incarnation is None:\n        return Scheduled(",
        tests=(ROUTING + "test_one_submission_that_arrives_twice_is_one_job_and_another_one_of_its_id_is_refused",),
    ),
    Mutant(
        "routing: mail is not looked up before it is submitted",
        "actors/sharing/remote_port.py",
        "accepted = {new.job.incarnation for new, is_known in zip(jobs, known, strict=True) if is_known}",
        "accepted = {new.job.incarnation for new, is_known in zip(jobs, known, strict=True) if is_known is None}",
        tests=(ROUTING + "test_mail_that_comes_again_is_done_once",),
    ),
    Mutant(
        "routing: calls have no id, so what may have been done is not made again",
        "actors/cluster/caller.py",
        'return self._new_id() if again or operation.again in NOTED else ""',
        'return ""',
        tests=(ROUTING + "test_a_link_lost_in_mid_call_does_nothing_twice_and_loses_nothing",),
    ),
    Mutant(
        "routing: a host answers from memory for actors that it has not got",
        "actors/cluster/peer_door.py",
        "if actor is not None and not self.provider.locate(actor).here:",
        "if actor is not None and self.provider is None:",
        tests=(ROUTING + "test_who_believes_in_an_owner_of_before_is_sent_on",),
    ),
    Mutant(
        "routing: a host that stands still is waited for",
        "actors/cluster/peers.py",
        "if silent >= SILENT:",
        "if silent < 0:",
        tests=(ROUTING + "test_a_host_that_stands_still_is_not_waited_for",),
        may_hang=True,
    ),
    Mutant(
        "routing: whoever opens a link is let in",
        "actors/cluster/peer_door.py",
        "if not is_proof(hello.proof, session.proof_of_caller):",
        "if not hello.proof:",
        tests=(LINKS + "test_who_opens_a_link_without_the_secret_hears_nothing_of_the_host",),
    ),
    Mutant(
        "routing: whoever lets this host in is believed",
        "actors/cluster/peer_link.py",
        "if not is_proof(welcome.proof, session.proof_of_called):",
        "if not welcome.proof:",
        tests=(LINKS + "test_who_lets_everybody_in_without_the_secret_is_told_nothing",),
        may_hang=True,
    ),
    Mutant(
        "routing: seals are not looked at",
        "actors/cluster/seals.py",
        "if not hmac.compare_digest(seal, self._next(kind, number, said)):",
        "if self._next(kind, number, said) and not seal:",
        tests=(
            LINKS + "test_frames_carry_seals_of_their_place_and_their_end",
            LINKS + "test_a_frame_that_was_changed_on_its_way_ends_the_link_and_the_call_is_made_again",
        ),
    ),
    Mutant(
        "routing: a frame may come twice under its seal",
        "actors/cluster/seals.py",
        "        self._frames += 1\n",
        "        pass\n",
        tests=(LINKS + "test_frames_carry_seals_of_their_place_and_their_end",),
    ),
    Mutant(
        "routing: a read does not say that the store answered it",
        "actors/cluster/ports.py",
        "        source.from_store = True\n",
        "        pass\n",
        tests=(HTTP + "test_reads_say_that_the_store_answered_and_fresh_ones_come_from_the_owner",),
    ),
    Mutant(
        "routing: a fresh read is answered from the store",
        "actors/cluster/ports.py",
        "            if store and not _wants_fresh():\n",
        "            if store:\n",
        tests=(HTTP + "test_reads_say_that_the_store_answered_and_fresh_ones_come_from_the_owner",),
    ),
    Mutant(
        "routing: a full mailbox says to come again in a second",
        "actors/http/errors.py",
        'told = error.details.get("retryAfterMs")',
        "told = None",
        tests=(HTTP + "test_what_needs_the_owner_is_refused_with_the_reason_and_when_to_come_again",),
    ),
    Mutant(
        "routing: passes stay where they were given",
        "actors/cluster/cluster.py",
        '        await self._caller.ask("host.keep_pass", "", [digest, holder])\n',
        "        await self._here.keep(digest, holder)\n",
        tests=(ROUTING + "test_a_pass_given_at_one_host_is_taken_at_another_once",),
    ),
    Mutant(
        "routing: a sign of life that took long changes what time it is",
        "storage/ownership/membership.py",
        "if before is None or error <= known or abs(offset - before) > error + known:",
        "if before is None or error >= 0:",
        tests=(
            "tests/storage/ownership/test_store_time.py::test_a_sign_of_life_that_took_long_does_not_change_what_time_it_is",
        ),
    ),
    Mutant(
        "routing: a call that may have been done is said to be undone",
        "actors/sharing/caller.py",
        "                trip.in_doubt |= gone.sent and bool(trip.op)\n",
        "",
        tests=(ROUTING + "test_a_call_that_may_have_been_done_is_not_said_to_be_undone",),
    ),
    Mutant(
        "routing: a lease of another host ends by this host's clock alone",
        "actors/scheduler/state/leases.py",
        "return until + self._clocks_differ_ms if token in self._found else until",
        "return until",
        tests=(
            "tests/actors/cluster/test_whole_hosts.py::test_a_lease_of_another_host_ends_when_it_has_ended_by_the_clock_of_any_and_an_own_one_in_time",
        ),
    ),
    Mutant(
        "routing: an own lease is held as long as one of another host",
        "actors/scheduler/state/leases.py",
        "        self.remember(job_id, token, lease)\n        if lease.pool",
        "        self.find(job_id, token, lease)\n        if lease.pool",
        tests=(
            "tests/actors/cluster/test_whole_hosts.py::test_a_lease_of_another_host_ends_when_it_has_ended_by_the_clock_of_any_and_an_own_one_in_time",
        ),
    ),
    Mutant(
        "routing: a computer's clock that is stepped counts for some seconds",
        "actors/runtime/store_clock.py",
        "        if stepped or now >= self._look_at:\n",
        "        if now >= self._look_at:\n",
        tests=("tests/actors/test_store_clock.py::test_a_clock_that_is_stepped_is_put_right_at_once",),
    ),
    Mutant(
        "routing: hosts own slots before they know the time",
        "storage/ownership/membership.py",
        "        self.host = row.host\n        self._accepted(sent, beat, slept)\n",
        "        self.host = row.host\n        self._beaten(sent, slept)\n        self.answered()\n",
        tests=(
            "tests/storage/ownership/test_store_time.py::test_hosts_know_the_time_before_they_own_anything_and_are_no_further_apart_than_is_said",
        ),
    ),
    Mutant(
        "routing: a submission that is sent again is not looked up where it is done",
        "actors/sharing/remote_port.py",
        "    if op and operation.again is Again.LOOKED_UP:\n",
        "    if not op and operation.again is Again.LOOKED_UP:\n",
        tests=(ROUTING + "test_a_submission_that_a_host_reads_only_when_it_goes_on_is_not_done_again",),
    ),
    Mutant(
        "routing: what a handler does outside of its turn is done again",
        "actors/runtime/done.py",
        "    before.puts[key] = BEGUN  #",
        "    before.puts[key] = NO_ANSWER  #",
        tests=(DONE + "test_what_a_handler_does_outside_of_its_turn_is_not_done_again",),
    ),
    Mutant(
        "routing: a call that is refused by its note drops the actor's handlers that are outside",
        "actors/runtime/activation.py",
        "        except NotBegun as refusal:\n",
        "        except NotBegun as refusal:\n            self.actor = None\n",
        tests=(DONE + "test_what_a_handler_does_outside_of_its_turn_is_not_done_again",),
    ),
    Mutant(
        "routing: a turn that takes long holds up all actors that go with it",
        "actors/runtime/going.py",
        "TURN_S: Final = 0.5\n",
        "TURN_S: Final = 50.0\n",
        tests=(
            "tests/actors/test_actors_that_move.py::test_a_turn_that_takes_long_holds_nobody_up_and_leaves_nothing",
        ),
    ),
)
