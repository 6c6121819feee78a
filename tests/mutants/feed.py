"""Breakages of the live feed: what is told when, where it goes on, who may watch."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

T = "tests/actors/scheduler/test_feed.py::"
C = "tests/actors/scheduler/test_feed_converges.py::"
S = "tests/http/test_socket.py::"
E = "tests/http/test_changes.py::"

FEED = (
    Mutant(
        "feed: a change is told before it is durable",
        "actors/scheduler/actor/watched.py",
        "        turn.ctx.after_commit(feed.changed, touched)\n",
        "        feed.changed(touched)\n",
        tests=(
            T + "test_nothing_is_told_before_it_is_durable",
            C + "test_a_watcher_ends_with_what_the_lists_say_whatever_happened",
        ),
    ),
    Mutant(
        "feed: what is under way when somebody begins to watch is forgotten",
        "actors/scheduler/inflight/feed.py",
        '        self.settled = False\n        """False until all',
        '        self.settled = True\n        """False until all',
        tests=(T + "test_who_begins_while_a_commit_is_under_way_misses_nothing",),
    ),
    Mutant(
        "feed: an older place than is kept goes on in silence",
        "actors/scheduler/inflight/feed.py",
        "        if not self._frames or self._frames[0][0] > number + 1:\n            return None\n",
        "",
        tests=(T + "test_more_than_is_kept_is_answered_with_a_resync",),
    ),
    Mutant(
        "feed: a resync is not said",
        "actors/scheduler/client/feed.py",
        "if resync else []",
        "if False else []",
        tests=(T + "test_a_place_of_another_life_is_answered_with_a_resync",),
    ),
    Mutant(
        "feed: who leaves between resync and snapshot goes on without it",
        "actors/scheduler/client/feed.py",
        "seq=NOWHERE",
        "seq=seq",
        tests=(T + "test_a_place_of_another_life_is_answered_with_a_resync",),
    ),
    Mutant(
        "feed: places are the same after a restart",
        "actors/scheduler/inflight/feed.py",
        'return f"{self._random().getrandbits(80):020x}"',
        'return f"{1:020x}"',
        tests=(T + "test_a_place_of_another_life_is_answered_with_a_resync",),
    ),
    Mutant(
        "feed: frames carry args",
        "actors/scheduler/model/feed_frames.py",
        "        workflow=job.workflow,\n        pool",
        "        workflow=job.args.decode(),\n        pool",
        tests=(
            T + "test_it_begins_with_a_snapshot_and_goes_on_with_what_changes",
            S + "test_frames_come_as_messages_and_pings_are_answered",
        ),
    ),
    Mutant(
        "feed: a watcher that is cancelled takes changes with it",
        "actors/scheduler/client/feed.py",
        "                feed.put_back(taken)\n",
        "",
        tests=(T + "test_what_a_frame_could_not_be_made_of_is_in_the_next_one",),
    ),
    Mutant(
        "feed: a frame is made at each change",
        "actors/scheduler/inflight/feed.py",
        "APART_S: Final = 0.1",
        "APART_S: Final = 0.0",
        tests=(T + "test_no_more_than_ten_frames_a_second_and_all_who_watch_get_the_same",),
    ),
    Mutant(
        "feed: it goes on for ever though nobody watches",
        "actors/scheduler/inflight/feed.py",
        "self._monotonic() - self._left_at >= KEPT_S)",
        "False)",
        tests=(T + "test_a_feed_that_nobody_watches_ends_after_two_minutes_and_costs_nothing_then",),
    ),
    Mutant(
        "feed: it does not end with its instance",
        "actors/scheduler/actor/scheduler_actor.py",
        "                self.ctx.after_commit(self._inflight.feed.end)\n",
        "                pass\n",
        tests=(T + "test_removing_the_instance_ends_its_feed",),
    ),
    Mutant(
        "feed: a job that is moved is not told",
        "actors/scheduler/actor/watched.py",
        'frozenset({b"job", b"at", b"lease", b"dead"})',
        'frozenset({b"job", b"lease", b"dead"})',
        tests=(
            T + "test_every_way_of_a_job_is_told_with_its_end",
            C + "test_a_watcher_ends_with_what_the_lists_say_whatever_happened",
        ),
    ),
    Mutant(
        "socket: pages of other origins open it",
        "actors/http/feed/socket.py",
        "if not is_own_page(request):",
        "if False:",
        tests=(S + "test_who_may_not_watch_is_told_why_before_anything_is_opened",),
    ),
    Mutant(
        "socket: a pass opens it twice",
        "actors/scheduler/inflight/passes.py",
        'self._kept.pop(digest, (float("-inf"), ""))',
        'self._kept.get(digest, (float("-inf"), ""))',
        tests=(S + "test_a_pass_opens_one_socket_of_its_instance_within_a_minute",),
    ),
    Mutant(
        "socket: a pass opens any instance",
        "actors/http/feed/passes.py",
        "if known is None or of != instance:",
        "if known is None:",
        tests=(S + "test_a_pass_opens_one_socket_of_its_instance_within_a_minute",),
    ),
    Mutant(
        "socket: who may watch is asked once",
        "actors/http/feed/watch.py",
        "            await may_watch()\n",
        "",
        tests=(
            E + "test_a_token_that_is_taken_away_ends_its_streams",
            S + "test_who_may_not_watch_is_told_why_before_anything_is_opened",
        ),
    ),
    Mutant(
        "socket: one that is closed counts as open",
        "src/tocsin/cli/sockets.py",
        "        self._closed()\n",
        "",
        tests=(S + "test_sockets_count_among_the_connections_until_they_are_closed",),
    ),
)
