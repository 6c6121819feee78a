"""Breakages of workers: how leases are renewed, and what is told of a worker."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

W = "tests/dispatch/worker/"

WORKERS = (
    Mutant(
        "attempt: an extension does not set the next renewal",
        "dispatch/worker/attempt.py",
        "            if self._renewal is not None:\n                self._renew_later()\n",
        "",
        tests=(W + "test_leases.py::test_a_lease_is_renewed_at_each_third_while_the_handler_runs",),
    ),
    Mutant(
        "attempt: a renewal that pauses holds up the next one",
        "dispatch/worker/attempt.py",
        "        if self._renewing is not None:\n            self._renewing.cancel()",
        "        if self._renewing is not None and not self._renewing.done():\n            return",
        tests=(W + "test_leases.py::test_a_short_lease_asked_for_after_an_outage_is_renewed_though_a_renewal_pauses",),
    ),
    Mutant(
        "announcer: every change is told at once",
        "dispatch/worker/announcer.py",
        "            await asyncio.sleep(SOON_S)\n",
        "            await asyncio.sleep(0)\n",
        tests=(W + "test_worker.py::test_changes_within_a_tenth_of_a_second_are_told_together",),
    ),
    Mutant(
        "failure: a code that handlers do not name counts as theirs",
        "dispatch/failure.py",
        "if not is_code(code) or code in GENERIC:",
        "if not is_code(code):",
        tests=(
            "tests/dispatch/receiver/test_coded_errors.py::test_any_receiver_may_say_a_code_and_what_is_none_is_passed_over",
        ),
    ),
    Mutant(
        "failure: secrets in data are kept",
        "dispatch/failure.py",
        "if holds_secrets(raw.decode()):",
        "if False:",
        tests=(W + "test_coded_errors.py::test_what_looks_like_a_secret_is_blanked_out_of_words_and_data",),
    ),
    Mutant(
        "outcomes: an error that is retried may answer that the job is gone",
        "dispatch/receiver/outcomes.py",
        " and not (self.retryable and status == GONE)",
        "",
        tests=(
            "tests/dispatch/receiver/test_coded_errors.py::test_an_error_that_is_retried_never_answers_that_the_job_is_dead",
        ),
    ),
    Mutant(
        "job: the code of a failure is not kept with the job",
        "actors/scheduler/transitions/job.py",
        "LastError(now, message, outcome.status, outcome.error_code, outcome.error_data)",
        "LastError(now, message, outcome.status)",
        tests=(W + "test_coded_errors.py::test_whoever_waits_is_told_code_status_and_data",),
    ),
    Mutant(
        "parameters: arguments are stored unchecked",
        "dispatch/parameters.py",
        "        self.expected.read(written)\n",
        "",
        tests=(
            "tests/actors/scheduler/test_tasks.py::test_arguments_that_do_not_fit_are_refused_before_anything_is_stored",
        ),
    ),
    Mutant(
        "parameters: defaults of the caller are stored",
        "dispatch/parameters.py",
        "        written = {",
        "        bound.apply_defaults()\n        written = {",
        tests=("tests/actors/scheduler/test_tasks.py::test_a_default_is_the_handler_s_where_it_runs",),
    ),
    Mutant(
        "tasks: what was bound before is forgotten",
        "actors/scheduler/client/tasks.py",
        "        self._bound.append(jobs)\n",
        "        self._bound[:] = [jobs]\n",
        tests=("tests/actors/scheduler/test_tasks.py::test_a_task_goes_to_the_scheduler_it_is_called_on_or_bound_to",),
    ),
    Mutant(
        "validation: a text of the app's own class is stored as it is",
        "actors/scheduler/model/validation.py",
        "    return value if type(value) is str else str.__str__(value)",
        "    return value",
        tests=(
            "tests/actors/scheduler/test_pools.py::test_texts_of_a_class_of_the_app_s_are_stored_as_the_texts_they_are",
        ),
    ),
    Mutant(
        "threads: a function that was cancelled before it began runs later",
        "dispatch/threads.py",
        "        if not answer.set_running_or_notify_cancel():\n            return\n",
        "        answer.set_running_or_notify_cancel()\n",
        tests=(
            "tests/dispatch/test_thread_exhaustion.py::test_a_worker_s_handler_without_a_thread_waits_for_its_turn",
        ),
    ),
)
