"""Breakages of the clients: what they repeat, what they send, and what they make of answers."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

F = "tests/actors/client/test_faults.py::"
D = "tests/actors/client/test_every_door.py::"
S = "tests/actors/client/test_sync_client.py::"
R = "tests/actors/client/test_results.py::"

CLIENTS = (
    Mutant(
        "client: what may have been done is sent again",
        "actors/client/server.py",
        "if not (may_pass(error) if again else _did_nothing(error))",
        "if not may_pass(error)",
        tests=(F + "test_what_may_have_been_done_is_not_sent_again",),
    ),
    Mutant(
        "client: what certainly was not done is not sent again",
        "dispatch/server_client.py",
        "sent = not isinstance(error, (httpx.ConnectError,",
        "sent = not isinstance(error, (httpx.ReadError,",
        tests=(F + "test_what_certainly_was_not_done_is_sent_again",),
    ),
    Mutant(
        "client: a job is sent without a key",
        "dispatch/server_client.py",
        '{} if key is None else {"idempotency-key": key}',
        "{}",
        tests=(F + "test_what_may_be_repeated_is_and_is_done_once",),
    ),
    Mutant(
        "client: a settlement is sent once",
        "actors/client/changes.py",
        "return once(rescue=partial(self._server.again, once=once, again=ALWAYS))",
        "return once()",
        tests=(F + "test_a_settlement_whose_answer_was_lost_is_said_again_and_counts_once",),
    ),
    Mutant(
        "client: a server is asked again before it said",
        "actors/client/server.py",
        'wait = max(pause, error.details.get("retry_after_s", 0))',
        "wait = pause",
        tests=(F + "test_a_server_that_says_when_is_asked_then_and_not_beyond_the_patience",),
    ),
    Mutant(
        "client: a wrong place is taken for an absent thing",
        "actors/client/server.py",
        'return "route" not in error.details',
        "return True",
        tests=(F + "test_a_wrong_place_on_a_server_is_not_an_absent_thing",),
    ),
    Mutant(
        "client: a delay is an instant of its own clock",
        "actors/client/bodies.py",
        "if isinstance(due, Delayed):",
        "due = int(due)\n    if False:",
        tests=(F + "test_a_delay_counts_from_the_servers_now",),
    ),
    Mutant(
        "client: ids of a block are not those of its jobs",
        "actors/client/bodies.py",
        "if new.chosen or now is not None or",
        "if new.chosen or",
        tests=(D + "test_a_block_submits_its_jobs_together_or_none",),
    ),
    Mutant(
        "client: the span of a job names another id than the job has",
        "actors/client/bodies.py",
        " or job.trace is not None:",
        ":",
        tests=("tests/test_tracing.py::test_a_client_s_span_is_the_one_that_a_job_comes_from",),
    ),
    Mutant(
        "client: what follows a job is left out",
        "actors/client/bodies.py",
        "    if job.chained:",
        "    if False:",
        tests=(D + "test_jobs_are_made_read_moved_and_cancelled",),
    ),
    Mutant(
        "client: who wants a job is dropped in silence",
        "actors/client/checks.py",
        'if new.job.initiator != ("", ""):',
        "if False:",
        tests=("tests/actors/outbox/test_remote.py::test_rows_come_to_the_instances_of_a_server_and_refusals_back",),
    ),
    Mutant(
        "client: a name with a slash is another route",
        "actors/client/schedules.py",
        "{part(schedule_name(name))}",
        "{part(name)}",
        tests=("tests/actors/client/test_refusals.py::test_what_is_refused_is_refused_in_the_same_words",),
    ),
    Mutant(
        "sync client: an interrupted claim goes on",
        "actors/client/blocking.py",
        "                task.cancel()",
        "                pass",
        tests=(S + "test_a_claim_that_is_interrupted_takes_no_job_with_it",),
    ),
    Mutant(
        "sync client: a child uses its parent's thread",
        "actors/client/blocking.py",
        "        held.clear()\n",
        "",
        tests=(S + "test_a_child_process_has_connections_of_its_own",),
    ),
    Mutant(
        "results: the retry ladder is not whole",
        "actors/scheduler/model/records.py",
        "return found if self.retry is None else",
        "return found if True else",
        tests=(R + "test_it_is_what_http_answers",),
    ),
    Mutant(
        "http: the rule of an app is not asked about the owner of a set",
        "actors/http/operations_recurring.py",
        "    await call.admit(owner)\n",
        "",
        tests=("tests/http/test_authorize_rule.py::test_a_set_of_schedules_is_asked_for_by_its_owner_and_its_targets",),
    ),
)
