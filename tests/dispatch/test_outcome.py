"""Every row of the outcome table (contract, section 3)."""

from __future__ import annotations

import os
import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.dispatch import answer_contents
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.dispatch.outcome import classify, from_error, plain
from tocsin.dispatch.transport import Answer, BrokenExchange, DeadlinePassed, NeverConnected

NOW = 1_741_942_800_000  # Fri, 14 Mar 2025 09:00:00 GMT
HOUR = 3_600_000


def retry_after_ms(value: str | None, now_ms: int) -> int | None:
    return answer_contents.retry_after_ms({} if value is None else {"retry-after": value}, now_ms)


def judged(status: int, headers: dict[str, str] | None = None, body: bytes = b"said") -> AttemptOutcome:
    return classify(Answer(status, headers or {}, body), NOW)


# ---- Answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 226, 299])
@pytest.mark.parametrize("headers", [{}, {"tocsin-retry": "never"}, {"tocsin-declined": "1"}, {"retry-after": "9"}])
def test_any_2xx_is_done(status: int, headers: dict[str, str]) -> None:
    assert judged(status, headers) == AttemptOutcome(Verdict.DONE, None, status, None, b"said")


TWICE = ["1", " 1 ", "1, 1", "1,1", ",1", "1 ,", "0, 1", '"1"', "\t1"]


@pytest.mark.parametrize("value", TWICE)
def test_work_that_was_accepted_goes_on_however_the_header_is_doubled(value: str) -> None:
    outcome = judged(202, {"tocsin-accepted": value, "tocsin-lease-ms": "60000"})

    assert (outcome.verdict, outcome.lease_ms) == (Verdict.ACCEPTED, 60_000)


@pytest.mark.parametrize("value", ["", "0", "11", "true", "1.0", ";", "01"])
def test_what_does_not_say_that_it_was_accepted_is_done(value: str) -> None:
    assert judged(202, {"tocsin-accepted": value}).verdict is Verdict.DONE


@pytest.mark.parametrize(
    ("value", "length"),
    [
        ("3000", 3_000),
        (" 3000 ", 3_000),
        ("3000, 3000", 3_000),
        ("3000, 60000", 60_000),
        ("x, 3000", 3_000),
        ('"3000"', 3_000),
        ("0003000", 3_000),
        ("1", 1_000),
        ("9" * 5_000, HOUR),
        ("", None),
        ("x", None),
        ("-3000", None),
        ("1e4", None),
        ("３０００", None),
    ],
)
def test_a_lease_is_as_long_as_the_longest_that_was_said(value: str, length: int | None) -> None:
    assert judged(202, {"tocsin-accepted": "1", "tocsin-lease-ms": value}).lease_ms == length


@pytest.mark.parametrize("value", TWICE)
def test_a_declared_decline_is_one_whatever_the_body(value: str) -> None:
    outcome = judged(409, {"tocsin-declined": value, "tocsin-retry": "never"}, b"not json")

    assert (outcome.verdict, outcome.status, outcome.retry_after_ms) == (Verdict.DECLINED, 409, None)


@pytest.mark.parametrize(
    ("status", "headers"), [(409, {}), (409, {"tocsin-declined": "0"}), (409, {"tocsin-declined": "true"})]
)
def test_a_plain_409_is_a_failure(status: int, headers: dict[str, str]) -> None:
    assert judged(status, headers, b'{"code":"declined"}').verdict is Verdict.FAILED


@pytest.mark.parametrize("status", [400, 409, 429, 500, 503, 302])
@pytest.mark.parametrize("value", ["never", "Never", " never ", "NEVER, never", "later, never", '"never"'])
def test_a_receiver_that_never_wants_it_again_is_obeyed(status: int, value: str) -> None:
    outcome = judged(status, {"tocsin-retry": value, "retry-after": "5"})

    assert (outcome.verdict, outcome.message) == (
        Verdict.DEAD,
        f"HTTP {status}: the receiver asked for no retry{'' if status == 302 else ': said'}",
    )


def test_gone_is_dead() -> None:
    assert judged(410) == AttemptOutcome(Verdict.DEAD, "HTTP 410: gone: said", 410, None, b"said")


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_receiver_says_when(status: int) -> None:
    outcome = judged(status, {"retry-after": "120"})

    assert outcome == AttemptOutcome(
        Verdict.BUSY, f"HTTP {status}: busy, retry after 120000 ms: said", status, 120_000, b"said"
    )


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("headers", [{}, {"retry-after": "soon"}, {"retry-after": "-5"}])
def test_a_busy_receiver_that_does_not_say_when_has_failed(status: int, headers: dict[str, str]) -> None:
    assert judged(status, headers) == AttemptOutcome(Verdict.FAILED, f"HTTP {status}: said", status, None, b"said")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 418, 422, 425, 451, 499, 500, 501, 502, 504, 599])
def test_other_errors_climb_the_ladder(status: int) -> None:
    assert judged(status, {"retry-after": "60"}) == AttemptOutcome(
        Verdict.FAILED, f"HTTP {status}: said", status, None, b"said"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":{"code":"UNAUTHENTICATED","message":"no secret fits"}}', "no secret fits"),
        (b'{"error":"no such route"}', "no such route"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"detail":[{"loc":1}]}', '{"detail":[{"loc":1}]}'),
        (b'{"ok":false}', '{"ok":false}'),
        (b"Traceback:\r\n  File\tx\n\n", "Traceback: File x"),
        (b"\x1b[31mred\x00", r"\x1b[31mred\x00"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"x" * 500, "x" * 200 + "..."),
        (b"x" * 200, "x" * 200),
        (b"\x00" * 100, r"\x00" * 50 + "..."),
        (b"key whsec_c2VjcmV0IG9mIGF0IGxlYXN0 end", "key whsec_*** end"),
        (b"webhook-signature: v1,c2VjcmV0IG9mIGF0IGxlYXN0=", "webhook-signature: v1,***"),
        (b'authorization: "Bearer hunter2hunter2"', 'authorization: "Bearer ***"'),
        (b"tocsin-lease: 7.1.00000000000000000000000a", "tocsin-lease: ***"),
        (b'{"error":{"message":"key whsec_c2VjcmV0IG9mIGF0"}}', "key whsec_***"),
        (b"[" * 5_000, "[" * 200 + "..."),
    ],
)  # fmt: skip
def test_a_failure_is_told_in_the_receivers_own_words(body: bytes, words: str) -> None:
    assert judged(500, {}, body).message == f"HTTP 500: {words}"


@pytest.mark.parametrize("body", [b"", b" \n", b"\x1f\x8b compressed"])
def test_a_failure_without_words_is_told_by_its_status(body: bytes) -> None:
    assert judged(500, {"content-encoding": "gzip"} if body[:1] == b"\x1f" else {}, body).message == "HTTP 500"


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308, 399])
def test_redirects_are_failures_that_explain_themselves(status: int) -> None:
    outcome = judged(status)

    assert (outcome.verdict, outcome.message) == (Verdict.FAILED, f"HTTP {status}: redirects are not followed")


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://elsewhere.example/x", "https://elsewhere.example/x"),
        ("https://Elsewhere.example:8443", "https://elsewhere.example:8443"),
        ("//elsewhere.example/x", "//elsewhere.example/x"),
        ("/_tocsin/callback/", "/_tocsin/callback/"),
        ("login", "login"),
        (" /x ", "/x"),
        ("https://user:hunter2@elsewhere.example/x?token=hunter2#hunter2", "https://elsewhere.example/x"),
        ("/x?token=hunter2", "/x"),
        ("http://[::1]:8000/x", "http://[::1]:8000/x"),
        ("/" + "x" * 9_000, "/" + "x" * 199 + "..."),
        ("/\x1b[31m", r"/\x1b[31m"),
    ],
)
def test_a_redirect_says_where_it_leads_without_what_may_be_secret(location: str, shown: str) -> None:
    outcome = judged(307, {"location": location})

    assert outcome.message == f"HTTP 307: redirects are not followed; it leads to {shown}"
    assert outcome.verdict is Verdict.FAILED


@pytest.mark.parametrize(
    "location", ["", "?token=hunter2", "mailto:hunter2", "data:hunter2", "http://[::1", "http://x:y/"]
)
def test_a_redirect_that_leads_nowhere_says_that_it_is_one(location: str) -> None:
    assert judged(302, {"location": location}).message == "HTTP 302: redirects are not followed"


JSON_TYPES = [
    "application/json",
    "Application/JSON; charset=utf-8",
    "application/json, application/json",
    "application/x+json",
    "application/json; profile=" + "x" * 200,
]


@pytest.mark.parametrize("content_type", JSON_TYPES)
def test_a_whole_json_body_is_the_result(content_type: str) -> None:
    assert judged(200, {"content-type": content_type}, b"[1]").result == b"[1]"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/html"},
        {"content-type": "text/html, application/json"},
        {"content-type": "application/json; profile=" + "x" * 200 + ", text/html"},
        {"content-type": "application/json", "tocsin-result": "0, 0"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_another_body_is_no_result(headers: dict[str, str]) -> None:
    assert judged(200, headers, b"[1]") == AttemptOutcome(Verdict.DONE, None, 200, None, b"[1]")


def test_a_body_that_was_cut_off_is_no_result_and_the_history_says_so() -> None:
    answer = Answer(200, {"content-type": "application/json"}, b"1" * 65_536, cut=True)
    outcome = classify(answer, NOW)

    assert (outcome.verdict, outcome.result) == (Verdict.DONE, None)
    assert outcome.message == "HTTP 200: the body is longer than 65536 bytes, so it is not kept as the result"
    assert classify(Answer(200, {"content-type": "text/html"}, b"1", cut=True), NOW).message is None


def test_a_body_that_is_not_json_is_no_result_and_the_history_says_so() -> None:
    outcome = judged(200, {"content-type": "application/json"}, b"{'a': 1}")

    assert (outcome.verdict, outcome.result) == (Verdict.DONE, None)
    assert outcome.message == "HTTP 200: the body is not JSON, so it is not kept as the result"


KIT = {"content-type": "application/json", "tocsin-result": "0"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"ok":true,"noResult":"the result has 70000 bytes"}', "HTTP 200: no result: the result has 70000 bytes"),
        (b'{"ok":true,"noResult":"two\\nlines whsec_c2VjcmV0"}', "HTTP 200: no result: two lines whsec_***"),
        (b'{"ok":true}', None),
        (b'{"ok":true,"duplicate":true}', None),
        (b'{"noResult":7}', None),
        (b'{"noResult":""}', None),
        (b'"noResult"', None),
    ],
)
def test_a_receiver_says_why_there_is_no_result(body: bytes, message: str | None) -> None:
    assert (judged(200, KIT, body).message, judged(200, KIT, body).result) == (message, None)


def test_an_answer_that_never_was_a_result_needs_no_reason() -> None:
    """An app's own page with a member of that name."""
    assert judged(200, {"content-type": "text/html"}, b'{"noResult":"x"}').message is None


@pytest.mark.parametrize("status", [0, 99, 100, 101, 103, 199, 600, 999])
def test_what_is_no_status_of_an_answer_is_a_failure(status: int) -> None:
    assert judged(status).verdict is Verdict.FAILED


@pytest.mark.parametrize("status", [200, 409, 410, 429, 500])
def test_two_kib_of_the_answer_are_kept(status: int) -> None:
    assert judged(status, {"retry-after": "1"}, b"x" * 2_048 + b"y" * 9_000).response == b"x" * 2_048


# ---- Retry-After ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("0", 0),
        ("120", 120_000),
        (" 120 ", 120_000),
        ("0120", 120_000),
        ("3600", HOUR),
        ("3601", HOUR),
        ("9999999999", HOUR),  # 317 years
        ("9" * 5_000, HOUR),
        ("Fri, 14 Mar 2025 09:05:00 GMT", 300_000),
        ("Friday, 14-Mar-25 09:05:00 GMT", 300_000),
        ("Fri Mar 14 09:05:00 2025", 300_000),
        ("Fri, 14 Mar 2025 10:05:00 +0100", 300_000),
        ("Fri, 14 Mar 2025 08:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", HOUR),
        ("", None),
        ("abc", None),
        ("-5", None),
        ("+5", None),
        ("1.5", None),
        ("1e3", None),
        ("１２０", None),
        ("120, 120", 120_000),
        ("120, 60", 120_000),
        (" , 120", 120_000),
        ("soon, 120", 120_000),
        ('"120"', 120_000),
        ("Fri, 14 Mar 2025 09:05:00 GMT, Fri, 14 Mar 2025 09:05:00 GMT", 300_000),
        ("fri, 14 mar 2025 09:05:00 gmt", 300_000),
        ("120, Fri, 14 Mar 2025 09:05:00 GMT", 300_000),
        ("120 s", None),
        ("2025-03-14T09:05:00Z", None),
        ("Fri, 32 Mar 2025 09:05:00 GMT", None),
        ("Fri, 14 Mar 99999999999 09:05:00 GMT", None),
        ("Fri, 14 Mar 2025 09:05:00 +999999999999999999", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, expected: int | None) -> None:
    assert retry_after_ms(value, NOW) == expected


def test_a_date_without_a_zone_is_utc_wherever_we_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert retry_after_ms("Fri Mar 14 09:05:00 2025", NOW) == 300_000
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.text(max_size=60) | st.integers().map(str), st.integers(10**11, 10**15 - 1))
def test_no_retry_after_breaks_anything(value: str, now_ms: int) -> None:
    wait = retry_after_ms(value, now_ms)

    assert wait is None or 0 <= wait <= HOUR


DATES = "Fri, 14 Mar 2025 09:05:00 GMT Fri 14-Mar-25 09.05.00 +2359 0001 9999 99:99:99 -2359 EST PM : , - ( 0"
PARTS = st.sampled_from(DATES.split())


@given(st.lists(PARTS, max_size=9), st.sampled_from([" ", "", " , "]))
def test_no_date_of_odd_parts_breaks_anything(parts: list[str], between: str) -> None:
    wait = retry_after_ms(between.join(parts), NOW)

    assert wait is None or 0 <= wait <= HOUR


@given(st.integers(-10_000, 10_000))
def test_dates_count_from_now(seconds: int) -> None:
    value = formatdate(NOW / 1000 + seconds, usegmt=True)

    assert retry_after_ms(value, NOW) == min(max(seconds * 1000, 0), HOUR)


# ---- No answer -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NeverConnected("refused"), AttemptOutcome(Verdict.UNREACHABLE, "never connected: refused")),
        (DeadlinePassed("none after 5 s"), AttemptOutcome(Verdict.UNKNOWN, "no answer in time: none after 5 s")),
        (BrokenExchange("reset"), AttemptOutcome(Verdict.FAILED, "broken exchange: reset")),
    ],
)
def test_errors_have_their_rows(error: NeverConnected, outcome: AttemptOutcome) -> None:
    assert from_error(error) == outcome


def test_messages_are_fit_to_be_stored_and_shown() -> None:
    assert plain("bad line '\x00\x1b[31m\udc80\n'") == r"bad line '\x00\x1b[31m\xdc80\x0a'"
    assert len(plain("x" * 10_000)) < 600
    assert plain("grüße ☃") == "grüße ☃"
