"""Breakages of who owns what in a shared store, and of actors that go from host to host."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

MOVE = "tests/actors/test_actors_that_move.py::test_"
OWN = "tests/storage/ownership/test_"

WENT_BACK = "test_a_store_that_went_back_is_noticed_by_who_gives_its_slots_away_before_it_writes_again"

OWNING = (
    Mutant(
        "owning: a session that is there again makes sure, whatever others did meanwhile",
        "storage/ownership/membership.py",
        " and self._known_alive_at >= self._engine.session_held_at\n",
        "\n",
        tests=(f"{OWN}failover.py::test_a_session_that_comes_back_after_others_acted_makes_nobody_sure",),
    ),
    Mutant(
        "owning: a host of a copy of the store is let in",
        "actors/cluster/peer_door.py",
        "        if not self._door.provider.is_host(hello.host):\n",
        "        if not hello.host:\n",
        tests=(
            "tests/actors/cluster/test_peer_links.py::"
            "test_a_host_of_a_copy_of_the_store_is_not_let_in_although_it_knows_the_secret",
        ),
    ),
    Mutant(
        "owning: whoever waits for an answer by mail looks for it alone",
        "storage/ownership/mailbox.py",
        "range(0, len(waited), MAIL_AT_ONCE):\n"
        "                    await self._look_for(waited[first : first + MAIL_AT_ONCE])",
        "range(len(waited)):\n                    await self._look_for([waited[first]])",
        tests=(f"{OWN}mailbox.py::test_all_who_wait_for_answers_look_together",),
    ),
    Mutant(
        "moving: a request for an actor of another host is put in line",
        "actors/runtime/host.py",
        "            if self._elsewhere.shared is not None:\n                self._elsewhere.check(actor)\n",
        "",
        tests=(f"{MOVE}nothing_rings_or_is_answered_from_memory_while_the_store_is_away_and_all_goes_on_after",),
    ),
    Mutant(
        "moving: calls in line are run before the actor goes",
        "actors/runtime/going.py",
        "        fail_all((reply for _, reply in self._line.take_events()), error)\n",
        "",
        tests=(f"{MOVE}what_runs_ends_here_and_what_waits_is_told_to_go_there",),
    ),
    Mutant(
        "moving: turns that run are not waited for",
        "actors/runtime/elsewhere.py",
        "        await asyncio.gather(*(activation.left() for activation in going))\n",
        "",
        tests=(f"{MOVE}what_runs_ends_here_and_what_waits_is_told_to_go_there",),
    ),
    Mutant(
        "moving: what was sealed fails at once when its actor is lost",
        "actors/runtime/going.py",
        "        for layer in self.storage.sealed:\n            layer.after_commit.clear()\n",
        "        for layer in self.storage.sealed:\n            layer.after_commit.clear()\n"
        "            fail_all((reply for reply, _ in layer.answers), error)\n",
        tests=(f"{MOVE}a_commit_that_is_in_the_store_is_answered_although_the_actor_is_gone",),
    ),
    Mutant(
        "moving: work behind a commit is done although its actor is lost",
        "actors/runtime/going.py",
        "            layer.after_commit.clear()\n",
        "",
        tests=(f"{MOVE}a_commit_that_is_in_the_store_is_answered_although_the_actor_is_gone",),
    ),
    Mutant(
        "moving: alarms stay where their actors were",
        "actors/runtime/elsewhere.py",
        "            alarms.set(actor, None)\n",
        "",
        tests=(f"{MOVE}alarms_go_with_their_actors_and_ring_once",),
    ),
    Mutant(
        "moving: alarms ring while the lease is not good",
        "actors/runtime/alarms.py",
        "        if self._held is not None and self._held():\n",
        "        if self._held is not None and not self._held:\n",
        tests=(f"{MOVE}nothing_rings_or_is_answered_from_memory_while_the_store_is_away_and_all_goes_on_after",),
    ),
    Mutant(
        "moving: a handler that comes back to an actor that is gone is told to go there",
        "actors/runtime/activation.py",
        "        if self._undecided:\n            raise ActorBrokenError(",
        "        if self._undecided and self.broken is None:\n            raise ActorBrokenError(",
        tests=(f"{MOVE}a_handler_that_comes_back_to_an_actor_that_is_gone_is_told",),
    ),
    Mutant(
        "owning: one actor that is fenced fails all that travelled with it",
        "storage/combiner.py",
        "            sound = self._without(sound, error)\n",
        "            for entry in sound:\n                self._fail(entry, next(iter(error.errors.values())))\n"
        "            break\n",
        tests=(f"{OWN}unknown_outcomes.py::test_one_actor_that_is_fenced_fails_alone",),
    ),
    Mutant(
        "owning: a slot that was lost is written again by who had it before",
        "storage/ownership/slots.py",
        "                handle.failed = handle.failed or error  # what it was",
        "                pass  # what it was",
        tests=(f"{OWN}unknown_outcomes.py::test_a_handle_of_an_earlier_tenure_writes_nothing_in_the_next_one",),
    ),
    Mutant(
        "owning: only the last take tells of a commit that broke off",
        "storage/ownership/engine.py",
        "        bases = (self.base_seq, *self.earlier_bases)\n",
        "        bases = (self.base_seq,) * 9\n",
        tests=(
            f"{OWN}unknown_outcomes.py::test_a_commit_that_breaks_off_before_a_steal_is_told_apart",
            f"{OWN}unknown_outcomes.py::test_a_row_tells_what_became_of_a_commit_as_far_back_as_it_remembers",
        ),
    ),
    Mutant(
        "owning: an outage of the store makes a host begin anew",
        "storage/ownership/membership.py",
        " - lost_at > ttl_s and self.connected_for(ttl_s)\n",
        " - lost_at > ttl_s\n",
        tests=(f"{OWN}failover.py::test_sessions_that_come_back_after_the_rows_make_nobody_begin_anew",),
    ),
    Mutant(
        "owning: a host whose session is gone trusts its memory to the end of its lease",
        "storage/ownership/membership.py",
        "        return self.lease_runs and session\n",
        "        return self.lease_runs or session\n",
        tests=(f"{OWN}failover.py::test_a_host_whose_session_is_gone_for_longer_trusts_its_memory_no_more",),
    ),
    Mutant(
        "owning: commits do not wait for a store that is away",
        "storage/ownership/commits.py",
        "(self._stopping or not self._waits())",
        "True",
        tests=(f"{OWN}failover.py::test_commits_wait_for_a_store_that_is_away_for_less_than_the_lease",),
    ),
    Mutant(
        "owning: a jump of the store's clock ends leases",
        "storage/ownership/membership.py",
        "            self._connected_since = loop.time()  # leases that it ended say nothing of their hosts\n",
        "            pass\n",
        tests=(f"{OWN}failover.py::test_a_clock_of_the_store_that_jumps_makes_nobody_dead",),
    ),
    Mutant(
        "owning: all slots are handed over at once while all goes on",
        "storage/ownership/keeper.py",
        "most=self._timing.step if me in ring.weights else SLOTS)\n",
        "most=SLOTS)\n",
        tests=(f"{OWN}sharing_out.py::test_a_host_that_joins_is_handed_its_share_in_steps",),
    ),
    Mutant(
        "owning: the dead stay in the store",
        "storage/ownership/keeper.py",
        "            await self._engine.forget(host)\n            self._buried",
        "            self._buried",
        tests=(f"{OWN}failover.py::test_a_host_that_is_killed_is_replaced_as_soon_as_its_session_is_seen_to_be_gone",),
    ),
    Mutant(
        "owning: what is given away is not compared with the store",
        "storage/ownership/keeper.py",
        "is not None and row.lacks(tenure.held):\n",
        "is not None and row.lacks(tenure.held) and not tenure.leaving:\n",
        tests=(f"{OWN}stores_that_go_back.py::{WENT_BACK}",),
    ),
    Mutant(
        "owning: what an unanswered statement gave away is not compared with the store",
        "storage/ownership/keeper.py",
        "        if missing := [tenure for tenure in tenures if tenure.slot not in rows]:\n",
        "        if missing := [tenure for tenure in tenures if tenure.slot in rows and tenure.slot not in rows]:\n",
        tests=(f"{OWN}stores_that_go_back.py::{WENT_BACK}",),
    ),
    Mutant(
        "owning: a store that went back is not told from a hand-over once the next owner has the slot",
        "storage/ownership/engine.py",
        "        return bases[back] if 0 <= back < len(bases) else None\n",
        "        return None\n",
        tests=(
            f"{OWN}stores_that_go_back.py::"
            "test_a_store_that_went_back_is_noticed_by_who_had_a_slot_that_others_have_by_now",
        ),
    ),
    Mutant(
        "owning: mail that was handed on comes again at every look",
        "storage/ownership/mailbox.py",
        " or now >= seen.again_at:\n",
        " or now >= 0:\n",
        tests=(f"{OWN}mailbox.py::test_mail_that_is_not_ended_comes_again_and_not_at_every_look",),
    ),
    Mutant(
        "owning: nobody is woken for mail whose owner is not known",
        "storage/ownership/mailbox.py",
        "        self.hints.send([] if owner is None else [owner])\n",
        "        self.hints.send([owner] if owner else [letter.mail.sender])\n",
        tests=(f"{OWN}mailbox.py::test_mail_for_a_slot_whose_owner_is_not_known_wakes_all",),
    ),
)
