"""The list of URLs that jobs may name: its grammar, and what an entry covers."""

from __future__ import annotations

import pytest

from tocsin.dispatch.url_list import UrlList, check_job_url, host_of, shown_url
from tocsin.errors import InvalidInputError, SettingsError

LIST = UrlList(
    ["https://hooks.example/", "https://*.customer.example/in/", "http://10.0.0.5:8080/job", "https://[2606:4700::1]/"]
)


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://hooks.example", "https://hooks.example"),
        ("HTTPS://Hooks.Example/a?b=c", "https://hooks.example/a?b=c"),
        ("https://hooks.example:443/x", "https://hooks.example:443/x"),
        ("https://a.customer.example/in/", "https://a.customer.example/in/"),
        ("https://a-1.customer.example/in/x/y", "https://a-1.customer.example/in/x/y"),
        ("http://10.0.0.5:8080/job", "http://10.0.0.5:8080/job"),
        ("http://10.0.0.5:8080/job/7", "http://10.0.0.5:8080/job/7"),
        ("https://[2606:4700:0::1]/z", "https://[2606:4700::1]/z"),
    ],
)
def test_what_an_entry_covers_is_called_as_it_was_checked(url: str, sent: str) -> None:
    assert LIST.check(url) == sent
    assert check_job_url(sent) == sent, "checked again before each attempt, it reads the same"


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/",  # the scheme
        "https://hooks.example:8443/",  # the port
        "https://xhooks.example/",
        "https://hooks.example.evil.example/",
        "https://evil.example/hooks.example/",
        "https://customer.example/in/",  # * stands for a label
        "https://a.b.customer.example/in/",  # for one
        "https://a.customer.example/in",
        "https://a.customer.example/inside/",
        "https://a.customer.example/IN/",
        "https://a.customer.example/i%6e/",
        "http://10.0.0.5:8080/jobs",
        "http://10.0.0.5/job",
    ],
)
def test_anything_else_is_refused_and_the_error_says_where_the_list_is(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"url: .* is not on the host's list of URLs \(allow_urls"):
        LIST.check(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://user@hooks.example/",
        "https://hooks.example@evil.example/",
        "https://evil.example#@hooks.example/",
        "https://hooks.example/#part",
        "https://evil.example\\@hooks.example/",
        "https://hooks.example\\.evil.example/",
        "https://hooks.example./",
        "https://hooks.example%00.evil.example/",
        "https://hooks.example /",
        "https://hooks.example/\r\nx: y",
        "https://a.customer.example/in/../admin",
        "https://a.customer.example/in/%2e%2e/admin",
        "https://a.customer.example/in/..;/admin",
        "https://a.customer.example/in/%2e.;x/admin",
        "https://a.customer.example/in/..%2fadmin",
        "https://a.customer.example/in/..%5Cadmin",
        "https://a.customer.example/in/%00",
        "https://127.1/",
        "https://0x7f.1/",
        "https://2130706433/",
        "https://0177.0.0.1/",
        "https://127.0.0.1./",
        "https://\uff11\uff12\uff17.1/",
        "https://[::ffff:127.0.0.1%25eth0]/",
        "https://[::1]evil.example/",
        "ftp://hooks.example/",
        "//hooks.example/",
        "/in",
        "",
        7,
        None,
        "https://hooks.example/" + "x" * 2048,
    ],
)
def test_what_two_readers_may_read_differently_is_no_url(url: object) -> None:
    with pytest.raises(InvalidInputError, match="url"):
        LIST.check(url)


@pytest.mark.parametrize(
    "entry",
    [
        "*",
        "https://*/",
        "https://*.example/",
        "https://*example.org/",
        "https://a.*.example.org/",
        "https://*.*.example.org/",
        "https://*.10.0.0.5/",
        "https://*.[::1]/",
        "https://hooks.example./",
        "https://hooks.example:*/",
        "https://hooks.example/in/*",
        "https://hooks.example/?x",
        "https://user@hooks.example/",
        "hooks.example",
        "",
        7,
    ],
)
def test_an_entry_outside_the_grammar_is_refused_by_name(entry: str) -> None:
    with pytest.raises(SettingsError, match="allow_urls"):
        UrlList([entry])


def test_a_list_is_no_text() -> None:
    with pytest.raises(SettingsError, match="allow_urls must be a list of URLs like"):
        UrlList("https://hooks.example/")


def test_names_of_other_scripts_are_compared_as_they_are_sent() -> None:
    names = UrlList(["https://*.b\u00fccher.example/"])

    assert names.check("https://a.B\u00dcCHER.example/x") == "https://a.xn--bcher-kva.example/x"


def test_a_query_and_a_path_are_not_told_where_they_may_be_secret() -> None:
    url = "https://hooks.example:8443/in?token=abc"

    assert shown_url(url) == "https://hooks.example:8443/in?…"
    assert host_of(url) == "https://hooks.example:8443"
