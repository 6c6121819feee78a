"""Origins and paths: joined with one slash, and nothing that two URL parsers read differently."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from tests.dispatch.scripted_server import always_ok, scripted_server
from tests.dispatch.test_transports import post
from tocsin import ActorHost, LeaseClient, RemoteScheduler
from tocsin.actors.testing import VirtualClock, simulate
from tocsin.dispatch.target import DEFAULT_PATH, callback_url, check_origin_url, check_path, is_loopback
from tocsin.dispatch.testing import FakeReceiver, SimNetwork
from tocsin.dispatch.transport import Transport
from tocsin.errors import SettingsError
from tocsin.settings import load
from tocsin.storage.memory import MemoryDisk, MemoryProvider

SECRET = "whsec_" + "A" * 32


@pytest.mark.parametrize(
    ("origin", "path", "url"),
    [
        ("https://app.example", DEFAULT_PATH, "https://app.example/_tocsin/callback"),
        ("https://app.example/", DEFAULT_PATH, "https://app.example/_tocsin/callback"),
        ("https://app.example///", DEFAULT_PATH, "https://app.example/_tocsin/callback"),
        ("http://127.0.0.1:8000/", "/x", "http://127.0.0.1:8000/x"),
        ("http://[::1]:8000", "/", "http://[::1]:8000/"),
        ("https://app.example/jobs/", "/cb/", "https://app.example/jobs/cb/"),
        ("HTTPS://App.Example", "/x", "https://app.example/x"),
        ("https://app.example.:8443", "/x", "https://app.example.:8443/x"),
        ("http://my_app:8000", "/x", "http://my_app:8000/x"),
        ("https://bücher.example", "/x", "https://xn--bcher-kva.example/x"),
        ("http://１２７.0.0.1", "/x", "http://127.0.0.1/x"),
        ("http://[0:0:0:0:0:0:0:1]:8000", "/x", "http://[::1]:8000/x"),
        ("https://app.example", "/é|{x}/%c3%a9", "https://app.example/%C3%A9%7C%7Bx%7D/%c3%a9"),
    ],
)
def test_there_is_one_slash_between_origin_and_path(origin: str, path: str, url: str) -> None:
    assert callback_url(origin, path) == url


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ("", "must be a URL like"),
        ("app.example", "must be a URL like"),
        ("ftp://app.example", "must be a URL like"),
        ("file:///etc/passwd", "must be a URL like"),
        ("https://", "must be a URL like"),
        ("https:///x", "must be a URL like"),
        ("https://app.example:0", "must be a URL like"),
        ("https://app.example:", "must be a URL like"),
        ("https://[::1]app.example", "must be a URL like"),
        ("http://[::1]evil.example:80", "must be a URL like"),
        ("https://app.example:99999", "must be a URL like"),
        ("https://app.example:x", "must be a URL like"),
        ("https://[::1", "must be a URL like"),
        ("https://app.example?x=1", "query or fragment"),
        ("https://app.example/?", "query or fragment"),
        ("https://app.example#", "query or fragment"),
        ("https://user:hunter2@app.example", "user or password"),
        ("https://user:hunter2@app.example:99999", "user or password"),
        ("https://@app.example", "user or password"),
        ("https://app.example/_tocsin/callback", "callback path, which is added"),
        ("https://app.example/_tocsin/callback/", "callback path, which is added"),
        ("not a url", "spaces"),
        ("   ", "spaces"),
        ("user:hunter2@app.example", "user or password"),
        ("http://[fe80::1%25eth0]:8000", "no zone"),
        ("http://[fe80::1%eth0]", "no zone"),
        ("http://[1::2::3]", "no address|must be a URL like"),
        ("http://[v1.x]", "must be a URL like|no address|no name"),
        ("http://127.1", "no address"),
        ("http://2130706433", "no address"),
        ("http://0x7f000001", "no address"),
        ("http://1.2.3.256", "no address"),
        ("http://a..example", "no name"),
        ("http://.example", "no name"),
        ("http://-a.example", "no name"),
        ("http://a%41.example", "no name"),
        ("http://" + "a" * 64 + ".example", "no name"),
        ("http://" + "a." * 130 + "example", "no name"),
        ("http://bü..example", "no name"),
        ("http://" + "ü" * 64 + ".example", "no name"),
        ("http://\ud800.example", "no name"),
        ("https://app.example/a/../b", ". or .. in its path"),
        ("https://app.example/%2E%2e", ". or .. in its path"),
        ("https://app.example/%zz", "escapes nothing"),
        ("https://app.example/\ud800", "no Unicode"),
        ("https://app.example?token=hunter2", "query or fragment"),
        (None, "not NoneType"),
        (8000, "not int"),
        (b"https://app.example", "not bytes"),
        ("https://app.example\r\nx: y", "control characters"),
        ("https://app.example ", "spaces"),
        ("https://evil.example\\.app.example", "backslashes"),
    ],
)
def test_an_unfit_origin_is_refused_without_showing_passwords(origin: object, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        check_origin_url(origin)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("path", ["", "x", "https://app.example", "/x?y", "/x#y", "/x y", "/x\r\ny: z", "\\x", "/\\x"])
def test_an_unfit_path_is_refused(path: str) -> None:
    with pytest.raises(SettingsError, match="the callback path must be a path like /_tocsin/callback"):
        check_path(path)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/a/./b", "clients differ"),
        ("/..", "clients differ"),
        ("/%", "escapes nothing"),
        ("/\ud800", "no Unicode"),
        (7, "int"),
    ],
)
def test_a_path_that_clients_send_differently_is_refused(path: object, said: str) -> None:
    with pytest.raises(SettingsError, match=f"the callback path .*{said}"):
        check_path(path)


ODD = ["/~a/%7Eb", "/a%2fb/%2F", "/a|b^c[d]{e}", "/é/☃", "/a;b=c,d:e@f!$&'()*+", "//a//b", "/%25zz"]


@pytest.mark.anyio
@pytest.mark.parametrize("path", ODD)
async def test_every_transport_sends_a_path_as_it_was_checked(transport: Transport, path: str) -> None:
    async with scripted_server(always_ok) as server:
        url = callback_url(f"http://127.0.0.1:{server.port}/in/", path)
        await post(transport, url)

    assert server.requests[0].split(b" ")[1].decode() == url.partition(str(server.port))[2]


REFUSED = ["http://h:99999/", "file:///etc/passwd", "http://user:hunter2@h/", "not a url", "", " ", "http://[fe80::1%25lo]/",
           "http://" + "ü" * 64, "http://h/?x=1", "http://h/#x", "http://h/_tocsin/callback"]  # fmt: skip


@pytest.mark.parametrize("origin", REFUSED)
def test_a_host_refuses_at_opening_what_its_attempts_and_the_server_refuse(origin: str) -> None:
    said = set()
    with pytest.raises(SettingsError) as by_attempt:
        callback_url(origin, DEFAULT_PATH)
    said.add(by_attempt.value.message)
    for given in (origin, lambda: origin) if origin else (origin,):
        with pytest.raises(SettingsError) as at_opening:
            ActorHost.open("memory:", origin=given, secrets=["whsec_" + "A" * 32])
        said.add(at_opening.value.message)
    if origin.strip():
        with pytest.raises(SettingsError) as by_settings:
            load({}, {"TOCSIN_ORIGIN_URL": origin})
        said.add(by_settings.value.message.replace("TOCSIN_ORIGIN_URL", "the origin"))

    assert len(said) == 1 and "hunter2" not in said.pop()


@pytest.mark.parametrize("path", ["cb", "/a?b", "/a/../b", "/%zz"])
def test_a_callback_path_is_refused_by_the_same_check_everywhere(path: str) -> None:
    with pytest.raises(SettingsError) as checked:
        check_path(path)
    with pytest.raises(SettingsError) as by_settings:
        load({}, {"TOCSIN_CALLBACK_PATH": path})
    with pytest.raises(SettingsError) as at_opening:
        ActorHost.open("memory:", callback_path=path)

    assert at_opening.value.message == checked.value.message
    assert by_settings.value.message.replace("TOCSIN_CALLBACK_PATH", "the callback path") == checked.value.message


@pytest.mark.parametrize("says", [KeyError("vault"), 8000, "file:///etc/passwd", "http://h:99999", " "])
def test_what_a_callable_says_wrong_loses_no_job(says: object) -> None:
    """It is asked when a job is scheduled and when it is due: while it is wrong, the job waits, uncharged."""

    async def main(random: Random) -> tuple[Any, list[str]]:
        clock, origin = VirtualClock(), Origin()
        receiver = FakeReceiver([SECRET], now_ms=clock.now_ms)
        async with ActorHost.open(
            MemoryProvider(MemoryDisk()),
            origin=origin,
            secrets=[SECRET],
            transport=SimNetwork(receiver, random),
            clock=clock,
            random=random,
        ) as host:
            origin.says = says
            await host.scheduler().run_after(0, "x", id="a")
            await asyncio.sleep(600)
            waiting = await host.scheduler().get("a")
            origin.says = "http://app.example"
            await receiver.wait_for(1)
            return waiting, [delivery.id for delivery in receiver.deliveries]

    waiting, delivered = simulate(1, main)

    assert (waiting.state, waiting.attempts, delivered) == ("waiting", 0, ["a"])
    assert "origin" in waiting.last_error.message


class Origin:
    """A callable that says, or raises, what it is told to."""

    def __init__(self) -> None:
        self.says: object = "http://app.example"

    def __call__(self) -> Any:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.mark.parametrize("says", [KeyError("vault"), 8000, "file:///etc/passwd"])
def test_a_callable_that_is_wrong_from_the_start_is_refused(says: object) -> None:
    origin = Origin()
    origin.says = says
    with pytest.raises(SettingsError):
        ActorHost.open("memory:", origin=origin, secrets=[SECRET])


@pytest.mark.parametrize(
    "url", ["http://h:99999", "file:///x", "http://u:hunter2@h", "http://h?token=hunter2", "", 7, "http://127.1", "a b"]
)
def test_clients_of_a_server_check_its_url_likewise(url: Any) -> None:
    for client in (RemoteScheduler, LeaseClient):
        with pytest.raises(SettingsError) as refused:
            client(url)
        assert "hunter2" not in refused.value.message


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.0.0.1/x", "http://127.9.9.9", "https://[::1]:4"])
def test_loopback(url: str) -> None:
    assert is_loopback(url)


@pytest.mark.parametrize("url", ["http://localhost.example", "http://10.0.0.1", "http://0.0.0.0", "http://[::]", "x"])
def test_not_loopback(url: str) -> None:
    assert not is_loopback(url)
