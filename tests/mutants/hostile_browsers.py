"""Breakages of what keeps the dashboard, the feed and an app's users from hostile pages and from impatient people."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

H = "actors/http/"
D = "actors/http/dashboard/"
B = "tests/http/dashboard/test_hostile_browsers.py::"
A = "tests/http/dashboard/test_what_is_asked.py::test_no_page_and_no_act_calls_what_the_rule_was_not_asked_for"
S = "tests/http/test_socket.py::"

HOSTILE_BROWSERS = (
    Mutant(
        "said: a forged cookie leads anywhere",
        D + "frame.py",
        '        return said if known else msgspec.structs.replace(said, undo="")',
        "        return said",
        tests=(B + "test_forged_words_lead_nowhere",),
    ),
    Mutant(
        "said: words are longer than cookies may be",
        D + "frame.py",
        "    while len(raw) > SAID_BYTES and words:",
        "    while False:",
        tests=(B + "test_words_that_are_too_long_for_a_cookie_are_cut_and_the_way_back_stays",),
    ),
    Mutant(
        "forms: a second click is done, too",
        D + "once.py",
        "        if known is None:",
        "        if True:",
        tests=(B + "test_a_second_click_on_a_bulk_retry_does_not_double_its_pace",),
    ),
    Mutant(
        "forms: one that is filled in otherwise has the answer of the first",
        D + "once.py",
        "[once, sorted(form.items())]",
        "[once]",
        tests=(B + "test_a_second_click_on_a_bulk_retry_does_not_double_its_pace",),
    ),
    Mutant(
        "forms: who hangs up on the first click cancels what was begun",
        D + "once.py",
        "await asyncio.shield(known[1])",
        "await known[1]",
        tests=(B + "test_a_form_is_done_once_also_where_the_first_click_is_hung_up_on",),
    ),
    Mutant(
        "forms: a failure is the answer for ten minutes",
        D + "once.py",
        "            self._sent.pop(key, None)",
        "            pass",
        tests=(B + "test_a_form_that_failed_may_be_sent_again",),
    ),
    Mutant(
        "cookies: their path is not as browsers write it",
        H + "cookies.py",
        'quote(request.scope.get("root_path", ""), safe=IN_PATHS) or "/"',
        'request.scope.get("root_path", "") or "/"',
        tests=(B + "test_it_works_under_a_path_that_is_no_ascii",),
    ),
    Mutant(
        "links: a page on another port leads to the login",
        D + "login.py",
        "any(site not in OWN_SITE for site in",
        'any(site == "cross-site" for site in',
        tests=(
            "tests/http/dashboard/test_coming_and_going.py::"
            "test_a_link_on_another_site_leads_here_although_the_browser_keeps_its_cookie_back",
        ),
    ),
    Mutant(
        "leave: questions tell what may not be read",
        D + "pools.py",
        '    await asked.admit("pool", name)\n',
        "",
        tests=(A,),
    ),
    Mutant(
        "leave: slots are shown to whom the rule refuses them",
        D + "schedules.py",
        'if await asked.may("schedules.occurrences", one.name):',
        "if True:",
        tests=(A, B + "test_slots_of_schedules_are_shown_only_to_whom_a_rule_lets_see_them"),
    ),
    Mutant(
        "bounds: args grow as they are indented",
        D + "args.py",
        "return text[:ARGS_MOST], len(text) > ARGS_MOST",
        "return text, len(text) > ARGS_MOST",
        tests=(B + "test_args_that_grow_by_their_indentation_are_cut",),
    ),
    Mutant(
        "bounds: each method that somebody invents is kept",
        H + "methods.py",
        "return method if method in METHODS else OTHER",
        "return method",
        tests=(B + "test_methods_that_nobody_knows_are_counted_as_one",),
    ),
    Mutant(
        "bounds: whoever asks a feed looks through all of them",
        "actors/scheduler/inflight/feed.py",
        "        if self._monotonic() >= self._swept_at + SWEEP_S:",
        "        if True:",
        tests=("tests/actors/scheduler/test_feed.py::test_whoever_asks_does_not_look_through_all_the_others",),
    ),
    Mutant(
        "sockets: each refusal is an error in the log",
        "src/tocsin/cli/sockets.py",
        "            self.handshake_complete = True",
        "            pass",
        tests=(S + "test_whoever_leaves_or_is_refused_is_no_error_of_the_server",),
    ),
    Mutant(
        "sockets: who leaves is an error in the log",
        H + "feed/watch.py",
        "            raise WatcherLeftError from error",
        "            raise",
        tests=(S + "test_a_server_may_say_by_an_error_that_a_watcher_has_left",),
    ),
    Mutant(
        "rule: pages of other origins act by the app's cookies",
        H + "access.py",
        '        if request.method == "POST" and not form:',
        "        if False:",
        tests=(
            "tests/http/test_authorize_rule.py::test_a_page_of_another_origin_changes_nothing_by_the_cookies_of_the_app",
        ),
    ),
    Mutant(
        "links: one leads out of the dashboard, to the app around it",
        D + "login.py",
        'return any(part in (".", "..") for part in path.partition("?")[0].split("/"))',
        "return False",
        tests=(B + "test_a_link_makes_no_browser_ask_for_what_is_no_page_of_the_dashboard",),
    ),
    Mutant(
        "forms: what was asked about one job is done to the next one of its id",
        D + "job_acts.py",
        "if record is not None and record.incarnation != about:",
        "if False:",
        tests=(B + "test_a_question_about_a_job_is_not_answered_for_the_next_one_of_its_id",),
    ),
    Mutant(
        "bounds: a feed that cannot be read fills the log",
        H + "feed/fanout.py",
        "                    if not is_said:",
        "                    if True:",
        tests=("tests/http/test_changes.py::test_a_feed_that_cannot_be_read_is_said_once_until_it_can",),
    ),
)
