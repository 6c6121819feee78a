"""Breakages of what operators see: traces and logs."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

T = "tests/test_tracing.py::"
R = "tests/dispatch/receiver/test_tracing.py::"
W = "tests/dispatch/test_trace_context.py::"

OPERATING = (
    Mutant(
        "tracing: a span id of zeros is a parent",
        "dispatch/trace_context.py",
        " or span == NO_SPAN:\n",
        ":\n",
        tests=(W + "test_what_is_not_valid_is_none",),
    ),
    Mutant(
        "tracing: version 00 may say more at its end",
        "dispatch/trace_context.py",
        'version == "00" or text[LENGTH]',
        "text[LENGTH]",
        tests=(W + "test_what_is_not_valid_is_none",),
    ),
    Mutant(
        "tracing: a state may name a vendor twice",
        "dispatch/trace_context.py",
        " or len({one[",
        " and len({one[",
        tests=(W + "test_a_state_is_kept_whole_shortened_or_not_at_all",),
    ),
    Mutant(
        "tracing: attempts pass on the span that they come from",
        "dispatch/trace_context.py",
        "{ONE_SPAN if span == NO_SPAN else span}",
        "{parent[36:52]}",
        tests=(
            W + "test_a_child_is_in_the_trace_and_a_span_of_its_own",
            T + "test_the_ids_of_spans_come_from_the_injected_random",
        ),
    ),
    Mutant(
        "tracing: what follows in a chain begins a trace",
        "actors/scheduler/transitions/chains.py",
        "trace=parent.trace",
        "trace=None",
        tests=(T + "test_each_attempt_is_a_span_of_its_own_and_errors_are_recorded",),
    ),
    Mutant(
        "tracing: the same job in another trace is another job",
        "actors/scheduler/transitions/submit.py",
        ', "trace": None,\n',
        ",\n",
        tests=(T + "test_keeping_a_job_that_is_there_does_not_depend_on_the_trace",),
    ),
    Mutant(
        "tracing: headers come before the members of a job",
        "actors/scheduler/client/job_checks.py",
        "if trace is None and (parent is not None or",
        "if parent is not None or (trace is None and",
        tests=(T + "test_headers_of_a_request_are_the_parent_of_its_jobs_and_members_of_a_job_come_first",),
    ),
    Mutant(
        "tracing: switched off, the current span still counts",
        "dispatch/tracing.py",
        "        if not self._on:\n            return parent\n",
        "",
        tests=(T + "test_without_tracing_there_are_no_spans_and_headers_still_count",),
    ),
    Mutant(
        "tracing: a worker's handlers run in the trace of what started the worker",
        "dispatch/tracing.py",
        "is_inside = queue is None and here",
        "is_inside = here",
        tests=(T + "test_a_worker_s_handlers_do_not_run_in_the_trace_of_what_started_the_worker",),
    ),
    Mutant(
        "tracing: a handler's span is a child of any current span",
        "dispatch/tracing.py",
        "here.is_valid and (sent is None or _same_trace(here, sent))\n        span",
        "here.is_valid\n        span",
        tests=(R + "test_the_span_of_a_web_framework_stays_between_the_callback_and_the_handler",),
    ),
    Mutant(
        "tracing: whoever asks to be called later has failed",
        "dispatch/tracing.py",
        " and error.code == LATER:",
        " and not error.code:",
        tests=(T + "test_a_handler_that_asks_to_be_called_later_has_not_failed",),
    ),
    Mutant(
        "tracing: a client does not send the trace of a job",
        "actors/client/bodies.py",
        "    if job.trace is not None:\n",
        "    if False:\n",
        tests=(T + "test_a_client_s_span_is_the_one_that_a_job_comes_from",),
    ),
)
