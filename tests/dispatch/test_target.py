"""Origins and paths: joined with one slash, and nothing that two URL parsers read differently."""

from __future__ import annotations

import pytest

from tocsin.dispatch.target import DEFAULT_PATH, callback_url, check_origin_url, check_path, is_loopback
from tocsin.errors import SettingsError


@pytest.mark.parametrize(
    ("origin", "path", "url"),
    [
        ("https://app.example", DEFAULT_PATH, "https://app.example/_tocsin/callback"),
        ("https://app.example/", DEFAULT_PATH, "https://app.example/_tocsin/callback"),
        ("https://app.example///", DEFAULT_PATH, "https://app.example/_tocsin/callback"),
        ("http://127.0.0.1:8000/", "/x", "http://127.0.0.1:8000/x"),
        ("http://[::1]:8000", "/", "http://[::1]:8000/"),
        ("https://app.example/jobs/", "/cb/", "https://app.example/jobs/cb/"),
        ("HTTPS://App.Example", "/x", "HTTPS://App.Example/x"),
    ],
)
def test_there_is_one_slash_between_origin_and_path(origin: str, path: str, url: str) -> None:
    assert callback_url(origin, path) == url


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ("", "must look like"),
        ("app.example", "must look like"),
        ("ftp://app.example", "must look like"),
        ("file:///etc/passwd", "must look like"),
        ("https://", "must look like"),
        ("https:///x", "must look like"),
        ("https://app.example:0", "must look like"),
        ("https://app.example:", "must look like"),
        ("https://[::1]app.example", "must look like|is not a URL"),
        ("http://[::1]evil.example:80", "must look like|is not a URL"),
        ("https://app.example:99999", "is not a URL"),
        ("https://app.example:x", "is not a URL"),
        ("https://[::1", "is not a URL"),
        ("https://app.example?x=1", "query or fragment"),
        ("https://app.example/?", "query or fragment"),
        ("https://app.example#", "query or fragment"),
        ("https://user:hunter2@app.example", "user name or password"),
        ("https://user:hunter2@app.example:99999", "user name or password"),
        ("https://@app.example", "user name or password"),
        ("https://app.example\r\nx: y", "control characters"),
        ("https://app.example ", "spaces"),
        ("https://evil.example\\.app.example", "backslashes"),
    ],
)
def test_an_unfit_origin_is_refused_without_showing_passwords(origin: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        check_origin_url(origin)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("path", ["", "x", "https://app.example", "/x?y", "/x#y", "/x y", "/x\r\ny: z", "\\x", "/\\x"])
def test_an_unfit_path_is_refused(path: str) -> None:
    with pytest.raises(SettingsError, match="the callback path must start with /"):
        check_path(path)


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.0.0.1/x", "http://127.9.9.9", "https://[::1]:4"])
def test_loopback(url: str) -> None:
    assert is_loopback(url)


@pytest.mark.parametrize("url", ["http://localhost.example", "http://10.0.0.1", "http://0.0.0.0", "http://[::]", "x"])
def test_not_loopback(url: str) -> None:
    assert not is_loopback(url)
