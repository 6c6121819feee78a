"""Breakages of who sees the dashboard, and who may do what on it."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

H = "actors/http/"
D = "actors/http/dashboard/"
C = "tests/http/dashboard/test_coming_and_going.py::"
J = "tests/http/dashboard/test_jobs.py::"

DASHBOARD = (
    Mutant(
        "session: one browser's is the next caller's, who has none",
        H + "access.py",
        "        if session is not None:  # may end",
        "        if False:  # may end",
        tests=(C + "test_one_callers_session_is_not_the_next_ones",),
    ),
    Mutant(
        "session: it counts for what writes over the API, too",
        H + "access.py",
        "counts = (request.method in READS or form) and",
        "counts =",
        tests=(C + "test_a_session_opens_nothing_that_writes",),
    ),
    Mutant(
        "session: pages of other origins read by it",
        H + "access.py",
        'and b"cookie" in request.named and is_own_page(request):',
        'and b"cookie" in request.named:',
        tests=(C + "test_pages_of_others_read_nothing_by_the_cookie",),
    ),
    Mutant(
        "session: it never ends",
        H + "sessions.py",
        "        if not 0 < left_ms <= LIFE_MS:",
        "        if False:",
        tests=(C + "test_a_session_ends_after_its_time",),
    ),
    Mutant(
        "session: its signature is not compared",
        H + "sessions.py",
        "            if hmac.compare_digest(_sign(token, said), match[3]):",
        "            if True:",
        tests=(C + "test_a_forged_session_is_none", C + "test_a_session_ends_with_its_token"),
    ),
    Mutant(
        "session: one that was logged out goes on for whoever has its cookie",
        H + "sessions.py",
        "if match is None or cookie in self._ended:",
        "if match is None:",
        tests=(C + "test_log_out_ends_it_here_also_for_whoever_has_the_cookie",),
    ),
    Mutant(
        "session: its cookie is sent over plain HTTP as well",
        H + "cookies.py",
        "    if is_secure(request):",
        "    if False:",
        tests=(C + "test_over_https_cookies_come_back_over_https_only",),
    ),
    Mutant(
        "forms: another site's are taken",
        D + "forms.py",
        "    if not _says_own(request):",
        "    if False:",
        tests=(C + "test_a_form_of_another_site_does_nothing",),
    ),
    Mutant(
        "forms: who does not say where a form is from is believed",
        D + "forms.py",
        '    return (b"sec-fetch-site" in request.named or b"origin" in request.named) and is_own_page(request)',
        "    return is_own_page(request)",
        tests=(C + "test_a_form_of_another_site_does_nothing",),
    ),
    Mutant(
        "forms: the mark is not compared",
        D + "forms.py",
        "    if not any(\n",
        "    if False and not any(\n",
        tests=(C + "test_a_form_without_the_mark_of_its_browser_does_nothing",),
    ),
    Mutant(
        "login: it leads to any address",
        D + "login.py",
        "return here if _OURS.fullmatch(here) and",
        "return here if",
        tests=(C + "test_a_login_leads_to_the_page_that_was_asked_for_and_to_no_other_site",),
    ),
    Mutant(
        "pages: what users wrote is markup",
        D + "rendering.py",
        "        autoescape=True,",
        "        autoescape=False,",
        tests=(J + "test_nothing_that_users_wrote_becomes_markup",),
    ),
    Mutant(
        "pages: the browser is not told what they may load",
        D + "headers.py",
        '    (b"content-security-policy", POLICY.encode()),\n',
        "",
        tests=(C + "test_every_answer_is_guarded",),
    ),
    Mutant(
        "pages: an act is refused where it is asked, and not where it is done",
        D + "endpoint.py",
        "        if place.action or visit.refusal is not None:",
        '        if request.method != "POST":',
        tests=(J + "test_who_may_only_look_is_offered_nothing_and_can_do_nothing",),
    ),
    Mutant(
        "pages: acts are offered to who may not do them",
        D + "asked.py",
        "        except ForbiddenError:\n            return False",
        "        except ForbiddenError:\n            return True",
        tests=(J + "test_who_may_only_look_is_offered_nothing_and_can_do_nothing",),
    ),
    Mutant(
        "pages: a limited token sees every instance",
        H + "instances.py",
        "    if token is not None and not token.reaches(name):",
        "    if False:",
        tests=(J + "test_instances_are_those_that_the_caller_may_see",),
    ),
    Mutant(
        "pages: args are shown to who has not asked for them",
        D + "job.py",
        'if record is not None and query.text("args") else',
        "if record is not None else",
        tests=(J + "test_args_are_shown_only_when_asked_for",),
    ),
    Mutant(
        "pages: an act is noted as done by nobody",
        D + "asked.py",
        'if self.request.method == "POST" else port',
        "if False else port",
        tests=(J + "test_what_is_done_here_is_noted_as_done_here_and_by_whom",),
    ),
)
