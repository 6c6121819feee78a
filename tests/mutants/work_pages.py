"""Breakages of the pages of the dashboard that people work with, and of the watch over pages in a browser."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

D = "actors/http/dashboard/"
T = "tests/http/dashboard/test_work_pages.py::"
L = "tests/http/dashboard/test_letters.py::"
J = "tests/http/dashboard/test_jobs.py::"

WORK_PAGES = (
    Mutant(
        "dashboard: a question about dead letters retries them",
        D + "redrives.py",
        "(await _redrive(asked, filters, RATE, dry_run=True))",
        "(await _redrive(asked, filters, RATE, dry_run=False))",
        tests=(L + "test_a_bulk_retry_says_how_many_first_and_then_how_far_it_has_come",),
    ),
    Mutant(
        "dashboard: a bulk retry forgets the filters that it was asked about",
        D + "redrives.py",
        "        kept=filters,\n",
        "",
        tests=(L + "test_a_bulk_retry_says_how_many_first_and_then_how_far_it_has_come",),
    ),
    Mutant(
        "dashboard: a form that is sent twice runs a schedule twice",
        D + "schedule.py",
        """trigger(asked.names["name"], asked.field("key"))""",
        """trigger(asked.names["name"], None)""",
        tests=(T + "test_a_form_that_is_sent_twice_runs_a_schedule_once",),
    ),
    Mutant(
        "dashboard: an app's rule is not asked about each letter that is marked",
        D + "letters.py",
        """        await asked.admit("dead_cancel", id)\n""",
        "        pass\n",
        tests=(L + "test_an_apps_rule_is_asked_about_each_letter_that_is_marked",),
    ),
    Mutant(
        "dashboard: next instants are those of UTC",
        D + "schedule.py",
        "datetime.fromtimestamp(at / 1000, ZoneInfo(zone))",
        'datetime.fromtimestamp(at / 1000, ZoneInfo("UTC"))',
        tests=(T + "test_a_schedule_is_shown_with_its_next_instants_where_it_lives",),
    ),
    Mutant(
        "dashboard: the log does not lead to what an action was about",
        D + "audit.py",
        "asked.url(place + one.about) if place and one.about",
        "asked.url(place) if place and one.about",
        tests=(T + "test_the_log_says_who_did_what_and_leads_there",),
    ),
    Mutant(
        "dashboard: a question about cancelling cancels",
        D + "dead.py",
        "dead_cancel_all(**arguments_of(filters), dry_run=True)",
        "dead_cancel_all(**arguments_of(filters), dry_run=False)",
        tests=(L + "test_a_group_is_cancelled_and_that_is_undone_and_the_undo_undone",),
    ),
    Mutant(
        "dashboard: a bulk retry that goes on is not shown with the dead letters",
        D + "dead.py",
        "if one is not None and one.running]",
        "if one is not None and not one.running]",
        tests=(L + "test_bulk_retries_that_go_on_are_shown_with_the_dead_letters",),
    ),
    Mutant(
        "browser: what a page asks of another host is not seen",
        "tests/browser/watched.py",
        "and parts.netloc != self._host",
        "and not parts.netloc",
        tests=("tests/browser/test_watched.py::test_a_fault_of_a_page_fails_its_test",),
    ),
    Mutant(
        "dashboard: a question about cancelling the jobs of a list cancels them",
        D + "job_bulk.py",
        "(await _cancel(asked, filters, dry_run=True))",
        "(await _cancel(asked, filters, dry_run=False))",
        tests=(J + "test_all_jobs_of_a_filter_are_cancelled_after_a_dry_run_and_that_is_undone",),
    ),
    Mutant(
        "dashboard: a list that a bulk cancel would go beyond offers it",
        D + "jobs.py",
        "given if given and given.keys() <= set(BULK) else None",
        "given or None",
        tests=(J + "test_all_jobs_of_a_filter_are_cancelled_after_a_dry_run_and_that_is_undone",),
    ),
    Mutant(
        "dashboard: banners of dead letters tell of other actions, too",
        D + "deeds.py",
        "            return one.action in actions\n",
        "            return True\n",
        tests=(J + "test_all_jobs_of_a_filter_are_cancelled_after_a_dry_run_and_that_is_undone",),
    ),
    Mutant(
        "dashboard: an instance that never was is healthy",
        "actors/scheduler/client/reads.py",
        "counts.backlog + counts.in_flight + counts.dead > 0 or await self._is_known()",
        "True",
        tests=(J + "test_a_slip_in_the_name_of_an_instance_is_seen",),
    ),
    Mutant(
        "browser: errors on the console are not seen",
        "tests/browser/watched.py",
        'if message.type in ("error", "warning")',
        'if message.type in ("fatal",)',
        tests=("tests/browser/test_watched.py::test_a_fault_of_a_page_fails_its_test",),
    ),
)
