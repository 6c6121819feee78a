"""Breakages of the engine of PostgreSQL, which tests of its statements and connections must catch."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

OUTCOMES = "tests/storage/postgres/test_outcomes.py::test_"
OWNERS = "tests/storage/test_shared_owners.py::test_"
STATEMENTS = "storage/postgres/statements.py"
CONNECTIONS = "storage/postgres/connections.py"

POSTGRESQL = (
    Mutant(
        "postgresql: settling does not wait for a commit whose client is gone",
        STATEMENTS,
        '"ORDER BY slot FOR NO KEY UPDATE"',
        '"ORDER BY slot"',
        tests=(OUTCOMES + "a_commit_that_is_cut_off_is_settled_once_the_server_is_done_with_it",),
    ),
    Mutant(
        "postgresql: a connection that broke counts as a commit that was not applied",
        "storage/postgres/engine.py",
        "                if not leaves_nothing(error):",
        "                if False:",
        tests=(OUTCOMES + "a_commit_that_is_cut_off_is_settled_once_the_server_is_done_with_it",),
    ),
    Mutant(
        "postgresql: the end of a server process counts as a refusal",
        "storage/postgres/errors.py",
        'and severity == "ERROR" and code[:2] != "08" and not code.startswith("57P")',
        "",
        tests=(OUTCOMES + "a_commit_whose_server_process_was_ended_is_not_applied",),
    ),
    Mutant(
        "postgresql: a cancelled caller takes its statement along",
        CONNECTIONS,
        "await asyncio.shield(task)",
        "await task",
        tests=(OUTCOMES + "a_cancelled_caller_goes_at_once_and_its_statement_runs_to_its_end",),
    ),
    Mutant(
        "postgresql: signs of life wait behind reads",
        "storage/postgres/engine.py",
        "self._run(self._keepers, self._sql.beat,",
        "self._run(self._readers, self._sql.beat,",
        tests=(OUTCOMES + "however_many_read_a_sign_of_life_finds_a_connection",),
    ),
    Mutant(
        "postgresql: every connection is waited for, one after the other, after all were cut",
        CONNECTIONS,
        "            self._on_silence()\n",
        "",
        tests=(OUTCOMES + "connections_that_fell_silent_cost_one_wait_and_not_one_each",),
    ),
    Mutant(
        "postgresql: a session waits until the server has found out by itself",
        "storage/postgres/session.py",
        "await connection.fetch(_END_EARLIER, lock, self._pid)",
        "await connection.fetch(_END_EARLIER, lock, 0)",
        tests=(
            "tests/storage/postgres/test_session.py::"
            "test_a_session_is_had_again_at_once_although_the_server_believes_in_the_earlier_connection",
        ),
    ),
    Mutant(
        "postgresql: a commit is as durable as the server's default",
        CONNECTIONS,
        '"synchronous_commit": "on"',
        '"lock_timeout": "0"',
        tests=(OUTCOMES + "a_commit_waits_for_the_disk_whatever_the_servers_default_is",),
    ),
    Mutant(
        "postgresql: a number that is taken ends the commit",
        "storage/postgres/engine.py",
        "in (DUPLICATE, *AGAIN)",
        "in AGAIN",
        tests=(OUTCOMES + "two_actors_never_share_a_number",),
    ),
    Mutant(
        "postgresql: numbers of an older store's actors are remembered",
        "storage/postgres/engine.py",
        "self._numbers.forget([one.slot for one in held if one.slot not in as_said])",
        "pass",
        tests=(OUTCOMES + "an_actor_that_an_older_store_does_not_know_is_made_again",),
    ),
    Mutant(
        "postgresql: the planner goes by its statistics",
        CONNECTIONS,
        '"enable_seqscan": "off",',
        "",
        tests=("tests/storage/postgres/test_plans.py::test_no_statement_reads_a_whole_table",),
    ),
    Mutant(
        "postgresql: a session that was cut does not take its lock again",
        "storage/postgres/session.py",
        "        while lock and not await",
        "        while lock and not self.lost_at and not await",
        tests=(
            "tests/storage/postgres/test_session.py::"
            "test_a_session_that_is_cut_is_there_again_with_its_lock_and_its_hints",
        ),
    ),
    Mutant(
        "postgresql: a newer layout is opened",
        "storage/postgres/migrate.py",
        "    if int(version) > LAYOUT:",
        "    if False:",
        tests=("tests/storage/postgres/test_layout.py::test_a_newer_layout_is_refused_and_left_as_it_is",),
    ),
    Mutant(
        "postgresql: an older layout is changed at the start",
        "storage/postgres/migrate.py",
        "    if before == 0:\n        try:",
        "    if before < LAYOUT:\n        try:",
        tests=("tests/storage/postgres/test_layout.py::test_an_older_layout_waits_for_the_command",),
    ),
    Mutant(
        "postgresql: the place of a store is its URL",
        "storage/postgres/address.py",
        "place = _place(parts, query, hosts, schema)",
        "place = dsn",
        tests=("tests/storage/postgres/test_url.py::test_a_password_is_shown_nowhere",),
    ),
    Mutant(
        "postgresql: the slots of a living owner are taken",
        STATEMENTS,
        "(s.owner IS NULL OR h.host IS NULL OR h.state = 'dead')",
        "s.slot >= 0",
        tests=(OWNERS + "a_slot_of_a_living_owner_is_not_taken",),
    ),
    Mutant(
        "postgresql: a slot that another host takes at the same moment is taken from it",
        STATEMENTS,
        "JOIN seen ON s.slot = seen.slot AND s.epoch = seen.epoch",
        "JOIN seen ON s.slot = seen.slot",
        tests=(
            "tests/storage/postgres/test_taking.py::"
            "test_what_another_host_takes_while_a_take_looks_is_not_taken_from_it",
        ),
    ),
    Mutant(
        "postgresql: a beat wakes the dead",
        STATEMENTS,
        '"WHERE host = $1 AND state <> \'dead\' "\n        "RETURNING state,',
        '"WHERE host = $1 "\n        "RETURNING state,',
        tests=(OWNERS + "who_lets_the_lease_end_is_declared_dead_for_good",),
    ),
    Mutant(
        "postgresql: what the driver says of a URL is repeated as it is",
        "storage/postgres/errors.py",
        "    if any(secret in words for secret in secrets):",
        "    if False:",
        tests=(
            "tests/storage/postgres/test_url.py::"
            "test_what_the_driver_refuses_is_told_in_its_words_unless_they_hold_the_password",
        ),
    ),
    Mutant(
        "postgresql: servers share one time limit for connecting",
        "storage/postgres/connections.py",
        "timeout=wait_s,",
        "timeout=60,",
        tests=(OUTCOMES + "a_server_that_says_nothing_does_not_use_up_the_time_of_the_next_one",),
    ),
)
