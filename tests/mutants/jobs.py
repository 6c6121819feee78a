"""Breakages of what is stored of jobs: turns, submits, chains, what follows."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

T = "tests/actors/scheduler/"
Q = "tests/actors/scheduler/queues/"

JOBS = (
    Mutant(
        "turn: a lease follows from its epoch and its number",
        "actors/scheduler/state/turn.py",
        ".{self.ctx.random.getrandbits(96):024x}",
        ".{self.ctx.next_seq():024x}",
        tests=(T + "test_incarnations.py::test_a_lease_cannot_be_guessed_from_others",),
    ),
    Mutant(
        "turn: none is ever full",
        "actors/scheduler/state/turn.py",
        "return keys >= KEYS_PER_TURN or layer.size >= BYTES_PER_TURN",
        "return False",
        tests=(Q + "test_many_paths.py::test_all_expire_at_one_instant",),
    ),
    Mutant(
        "turn: one is full by its keys alone, however large its rows",
        "actors/scheduler/state/turn.py",
        " >= KEYS_PER_TURN or layer.size >= BYTES_PER_TURN",
        " >= KEYS_PER_TURN",
        tests=(Q + "test_results.py::test_large_results_that_come_together_are_kept_in_several_turns",),
    ),
    Mutant(
        "turn: a lease is no longer than what the callback may take",
        "actors/scheduler/state/turn.py",
        "LEASE_MARGIN_MS = 15_000",
        "LEASE_MARGIN_MS = 0",
        tests=(
            T + "test_timeouts.py::test_the_instance_s_deadline_outlives_the_host_and_its_lease_is_longer_by_a_margin",
        ),
    ),
    Mutant(
        "turn: a lease forgets the deadline of its instance",
        "actors/scheduler/state/turn.py",
        "job.timeout_ms or turn.state.instance.timeout_ms or ",
        "job.timeout_ms or ",
        tests=(
            T + "test_timeouts.py::test_the_instance_s_deadline_outlives_the_host_and_its_lease_is_longer_by_a_margin",
        ),
    ),
    Mutant(
        "turn: a reschedule does not count as what was asked for",
        "actors/scheduler/model/instants_of_job.py",
        "return job.scheduled_for if at.moved_to is None else at.moved_to",
        "return job.scheduled_for",
        tests=(T + "test_attempts.py::test_a_job_that_was_moved_is_late_from_where_it_was_moved_to",),
    ),
    Mutant(
        "turn: long args lose their last piece",
        "actors/scheduler/state/turn.py",
        'b"") for n in range(job.args_rows))\n',
        'b"") for n in range(job.args_rows - 1))\n',
        tests=(T + "test_lifecycle.py::test_large_args_arrive_whole",),
    ),
    Mutant(
        "chains: what follows forgets who wanted it",
        "actors/scheduler/transitions/chains.py",
        ", parent=parent.id, initiator=parent.initiator\n",
        ", parent=parent.id\n",
        tests=(Q + "test_chains.py::test_who_asked_for_a_chain_is_the_initiator_of_all_its_jobs",),
    ),
    Mutant(
        "chains: what follows takes an id that somebody has",
        "actors/scheduler/transitions/chains.py",
        "    if not taken:\n",
        "    if True:\n",
        tests=(Q + "test_claims_under_failures.py::test_a_job_that_follows_takes_nobodys_id",),
    ),
    Mutant(
        "chains: what follows does not wait",
        "actors/scheduler/transitions/chains.py",
        "turn.now + one.delay_ms",
        "turn.now",
        tests=(Q + "test_chains.py::test_several_jobs_may_follow_and_wait_a_while",),
    ),
    Mutant(
        "chains: what follows does not get the result",
        "actors/scheduler/transitions/chains.py",
        'one.then, result or b"")',
        'one.then, b"")',
        tests=(Q + "test_chains.py::test_a_chain_runs_link_after_link_and_each_gets_the_result_of_the_one_before",),
    ),
    Mutant(
        "followers: one more than may be",
        "actors/scheduler/model/followers.py",
        "if len(then) > MAX_FOLLOWERS:",
        "if len(then) > MAX_FOLLOWERS + 1:",
        tests=(Q + "test_chains.py::test_what_cannot_follow_is_refused_and_says_where",),
    ),
    Mutant(
        "followers: a chain of any depth",
        "actors/scheduler/model/followers.py",
        "if levels > MAX_LEVELS:",
        "if False:",
        tests=(Q + "test_chains.py::test_what_cannot_follow_is_refused_and_says_where",),
    ),
    Mutant(
        "followers: a chain of any number",
        "actors/scheduler/model/followers.py",
        "if counted > MAX_CHAIN:",
        "if False:",
        tests=(Q + "test_chains.py::test_what_cannot_follow_is_refused_and_says_where",),
    ),
    Mutant(
        "followers: a chain of any size",
        "actors/scheduler/model/followers.py",
        "if len(then) > MAX_THEN:",
        "if False:",
        tests=(Q + "test_chains.py::test_what_cannot_follow_is_refused_and_says_where",),
    ),
    Mutant(
        "followers: the same chain differs by its ids",
        "actors/scheduler/model/followers.py",
        'renamed(followers_of(one, whole), repeat(""))',
        "followers_of(one, whole)",
        tests=(Q + "test_chains.py::test_keep_knows_the_same_chain_though_its_ids_are_others",),
    ),
    Mutant(
        "followers: nested ones are not counted as pending",
        "actors/scheduler/model/followers.py",
        "        yield from targets(one.then)\n",
        "",
        tests=(Q + "test_chains.py::test_pending_sees_what_waits_runs_retries_and_follows",),
    ),
    Mutant(
        "followers: the result of a parent is taken for args",
        "actors/scheduler/model/followers.py",
        "len(args) if then or parent_result else None",
        "len(args) if then else None",
        tests=(Q + "test_chains.py::test_callbacks_and_queues_mix_in_a_chain_and_a_json_answer_is_a_result",),
    ),
    Mutant(
        "submit: the quota forgets the dead",
        "actors/scheduler/transitions/submit.py",
        "counters.waiting + counters.leased + counters.dead",
        "counters.waiting + counters.leased",
        tests=(
            T + "test_loss_counts_and_quota.py::test_dead_jobs_count_in_the_quota_until_they_are_retried_or_removed",
        ),
    ),
    Mutant(
        "submit: the quota lets one more in",
        "actors/scheduler/transitions/submit.py",
        "if quota is None or held < quota:",
        "if quota is None or held <= quota:",
        tests=(
            T + "test_loss_counts_and_quota.py::test_dead_jobs_count_in_the_quota_until_they_are_retried_or_removed",
        ),
    ),
    Mutant(
        "submit: a dead job that is retried keeps its losses",
        "actors/scheduler/transitions/job.py",
        "attempts=0, losses=0, ",
        "attempts=0, ",
        tests=(T + "test_loss_counts_and_quota.py::test_a_job_that_was_lost_to_death_begins_anew_when_it_is_retried",),
    ),
    Mutant(
        "submit: a dead job that is retried is kept apart as before",
        "actors/scheduler/transitions/job.py",
        "losses=0, apart=0, ",
        "losses=0, ",
        tests=(T + "test_loss_counts_and_quota.py::test_a_job_that_was_lost_to_death_begins_anew_when_it_is_retried",),
    ),
    Mutant(
        "submit: a dead job that is retried has expired",
        "actors/scheduler/transitions/job.py",
        ", apart=0, expires=False)",
        ", apart=0)",
        tests=(T + "test_attempts.py::test_a_dead_letter_retried_after_it_would_have_expired_is_sent",),
    ),
    Mutant(
        "submit: who waits for a job that was replaced is told nothing",
        "actors/scheduler/transitions/apply.py",
        "            state.note_end(job)  # a caller that waits for this id waits for another job now\n",
        "",
        tests=(Q + "test_claims_under_failures.py::test_who_waits_for_a_job_hears_that_it_is_gone",),
    ),
    Mutant(
        "submit: a job overrides the cap that an operator has set",
        "actors/scheduler/transitions/apply.py",
        '(pool.set_by == "job" and pool.cap != job.max_concurrency)',
        "pool.cap != job.max_concurrency",
        tests=(T + "test_pools.py::test_a_job_sets_the_cap_until_an_operator_does",),
    ),
    Mutant(
        "submit: two jobs of a batch have one id",
        "actors/scheduler/transitions/submit.py",
        "        known[job.id] = Known(job, AtRow(job.scheduled_for))\n",
        "",
        tests=(T + "test_lifecycle.py::test_a_batch_answers_each_job_for_itself",),
    ),
    Mutant(
        "submit: a cancelled job leaves no word for who asks",
        "actors/scheduler/transitions/apply.py",
        '            state.keep_result(job, "cancelled", turn.now)\n',
        "",
        tests=(Q + "test_results.py::test_a_dead_cancelled_or_expired_job_has_no_result_and_says_why",),
    ),
    Mutant(
        "submit: cancelling a running job frees its slot at once",
        "actors/scheduler/transitions/submit.py",
        "decide.cancel_running(turn.state.leases[token][1]))\n",
        "decide.End(None, decide.Cancel(None)))\n",
        tests=(T + "test_accepted_work.py::test_a_worker_hears_that_its_job_was_cancelled",),
    ),
    Mutant(
        "submit: keep swaps a job that is there",
        "actors/scheduler/transitions/submit.py",
        '    if new.on_conflict == "keep":\n',
        "    if False:\n",
        tests=(T + "test_lifecycle.py::test_keep_answers_the_job_that_is_there",),
    ),
)
