"""Breakages of what operators see: traces and logs."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

T = "tests/test_tracing.py::"
R = "tests/dispatch/receiver/test_tracing.py::"
W = "tests/dispatch/test_trace_context.py::"
L = "tests/actors/scheduler/test_change_log.py::"
ODD = "tests/actors/sharing/test_odd_moments.py::"
J = "tests/cli/test_log_lines.py::"

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
        "        if trace is None:\n            trace, row = parent, job.job\n",
        "        if trace is None or parent is not None:\n            trace, row = parent, job.job\n",
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
    Mutant(
        "sharing: a stranger may keep a link for ever",
        "actors/sharing/holder.py",
        ".call_later(GREETING_S, self.abort)",
        ".call_later(GREETING_S * 1000, self.abort)",
        tests=(ODD + "test_who_opens_a_link_and_does_not_say_who_it_is_is_cut_off",),
    ),
    Mutant(
        "sharing: a follower that has said who it is is cut off",
        "actors/sharing/holder.py",
        "        self._end_greeting()\n        self._known",
        "        self._known",
        tests=(ODD + "test_who_opens_a_link_and_does_not_say_who_it_is_is_cut_off",),
    ),
    Mutant(
        "sharing: a holder that may not be ended ends the watch",
        "actors/sharing/watch.py",
        "    except PermissionError:\n",
        "    except KeyError:\n",
        tests=(ODD + "test_a_stopped_holder_that_may_not_be_ended_is_named_once_and_waited_for",),
    ),
    Mutant(
        "logs: changes are noted where nobody reads them",
        "actors/scheduler/actor/scheduler_actor.py",
        "        if change_log.log.isEnabledFor(DEBUG):",
        "        if True:",
        tests=(L + "test_nothing_is_noted_where_nobody_reads_it",),
    ),
    Mutant(
        "logs: a line is written before the commit",
        "actors/scheduler/actor/scheduler_actor.py",
        "            turn.changes.append((None, event, answered))\n",
        "            turn.changes.append((None, event, answered))\n"
        "            change_log.write(self.ctx.id.name, turn.changes)\n",
        tests=(L + "test_what_did_not_reach_the_disk_is_not_told",),
    ),
    Mutant(
        "logs: a lease that is held on is a start",
        "actors/scheduler/transitions/apply.py",
        "turn.changes is not None and decision.lease.kind != state.leases[token][1].kind",
        "turn.changes is not None",
        tests=(L + "test_a_lease_that_is_held_on_is_no_start",),
    ),
    Mutant(
        "logs: a refused change of an operator is told as done",
        "actors/scheduler/actor/change_log.py",
        " and not isinstance(attempt, Exception):",
        ":",
        tests=(L + "test_other_ends_and_operators_are_told_of",),
    ),
    Mutant(
        "logs: a field that is no text ends the log",
        "src/tocsin/cli/log_lines.py",
        "except (TypeError, ValueError, OverflowError, RecursionError):",
        "except TypeError:",
        tests=(J + "test_whatever_a_field_holds_the_line_is_written",),
    ),
    Mutant(
        "logs: a message for people may be two lines",
        "src/tocsin/cli/log_lines.py",
        "record.message = printable(record.message)",
        "record.message = record.message",
        tests=(J + "test_a_line_for_people_is_one_line_whatever_it_quotes",),
    ),
    Mutant(
        "logs: what a command says is no JSON",
        "src/tocsin/cli/log_lines.py",
        '    if form == "json":\n        say_as',
        '    if form == "xml":\n        say_as',
        tests=(J + "test_a_server_logs_objects_only_and_no_secret",),
    ),
    Mutant(
        "changes: a server that is lost ends it",
        "src/tocsin/cli/feed.py",
        "if not was_there or",
        "if was_there or",
        tests=("tests/cli/test_feed.py::test_a_server_that_is_lost_is_asked_again_until_it_is_back",),
    ),
    Mutant(
        "lists: an empty one does not name its filter",
        "src/tocsin/cli/jobs.py",
        "say(empty + asked_for(",
        "say(empty) or str(asked_for(",
        tests=("tests/cli/test_client.py::test_an_empty_list_names_its_filter",),
    ),
)
