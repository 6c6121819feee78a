"""A whole host on a real file: what the pages show, own actors, settings that do not fit, restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tocsin import Actor, ActorHost, Job, MemoryProvider, TocsinError
from tocsin.dispatch.asgi_transport import AsgiTransport
from tocsin.dispatch.builtin_transport import BuiltinTransport
from tocsin.dispatch.signing import Signer
from tocsin.errors import HostClosedError, InvalidInputError, OriginNotConfiguredError, SettingsError, StoreLocked

pytestmark = pytest.mark.anyio
SECRET = "whsec_" + "dGhlIHNlY3JldCBvZiB0aGlzIHRlc3QgOi0p"
ORIGIN = "https://app.example/"


class Counter(Actor):
    """The example of docs/actors.md."""

    async def add(self, n: int) -> int:
        value = int(await self.ctx.storage.get(b"n") or b"0") + n
        self.ctx.storage.put(b"n", b"%d" % value)
        self.ctx.set_alarm(self.ctx.now_ms() + 60_000)
        return value

    async def alarm(self) -> None:
        self.ctx.storage.delete(b"n")


class App:
    """An ASGI receiver in this process."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, str], bytes]] = []
        self.called = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.calls.append((scope["path"], headers, body))
        self.called.set()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def test_a_job_on_a_file_reaches_an_app_signed(tmp_path: Path) -> None:
    app = App()
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with ActorHost.open(url, origin=ORIGIN, secrets=[SECRET], transport=AsgiTransport(app)) as host:
        await host.scheduler("tenant-a").run_after(0, "invoices:send", {"invoice": 42})
        async with asyncio.timeout(10):
            await app.called.wait()

    ((path, headers, body),) = app.calls
    assert path == "/_tocsin/callback"
    now_s = int(headers["webhook-timestamp"])
    assert Signer([SECRET]).verify(headers, body, now_s=now_s) == headers["idempotency-key"]
    assert headers["user-agent"].startswith("tocsin/0.")


async def test_an_own_actor_keeps_its_rows_and_alarm_over_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/counters.db"
    async with ActorHost.open(url, actors=[Counter]) as host:
        assert await host.actor(Counter, "page-1").add(1) == 1
        assert await host.actor(Counter, "page-1").add(2) == 3
        assert await host.actor(Counter, "page-2").add(5) == 5
    async with ActorHost.open(url, actors=[Counter]) as host:
        assert await host.actor(Counter, "page-1").add(1) == 4


async def test_jobs_wait_on_the_file_until_a_host_comes(tmp_path: Path) -> None:
    app = App()
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with ActorHost.open(url, origin=ORIGIN, secrets=[SECRET], transport=AsgiTransport(App())) as host:
        await host.scheduler("a").submit_many([Job(path="work:run", after="1h") for _ in range(3)])
        await host.scheduler("b").run_after(0.05, "work:run", id="soon")
        await host.stop()
    async with ActorHost.open(url, origin=ORIGIN, secrets=[SECRET], transport=AsgiTransport(app)) as host:
        async with asyncio.timeout(10):
            await app.called.wait()
        assert (await host.scheduler("a").status()).backlog == 3


async def test_a_store_has_one_owner(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with ActorHost.open(url, share=False):
        for share in (False, None):
            with pytest.raises(StoreLocked, match="in use by process"):
                await ActorHost.open(url, share=share).__aenter__()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"origin": ORIGIN}, "unsigned"),
        ({"origin": ORIGIN, "insecure": True}, "loopback"),
        ({"origin": ORIGIN, "secrets": ["too short"]}, "at least 24"),
        ({"store": "redis://x"}, "the store 'redis://x' is not known: use sqlite:///file.db"),
        ({"store": "redis://me:hush@x"}, "the store redis:… is not known"),
        ({"store": "sqlite://jobs.db"}, r"'sqlite://jobs.db' is not known \(do you mean sqlite:///jobs.db\?\)"),
        ({"store": "sqlite:/var/jobs.db"}, r"\(do you mean sqlite:////var/jobs.db\?\)"),
        ({"store": "jobs.db"}, r"\(do you mean sqlite:///jobs.db\?\)"),
        ({"transport": "carrier-pigeon"}, "transport must be one of"),
        ({"transport": 3}, "transport must be one of builtin, .*, or an object with .* post and aclose, not an int"),
        ({"transport": BuiltinTransport}, "not the class BuiltinTransport"),
        ({"transport": SimpleNamespace(post=print)}, "transport must be .* post and aclose, not a SimpleNamespace"),
        ({"transport": SimpleNamespace(aclose=print)}, "transport must be .* post and aclose, not a SimpleNamespace"),
        (
            {"heartbeat_url": "http://127.0.0.1:1", "heartbeat_transport": object()},
            "heartbeat_transport must be .*, not an object",
        ),
        ({"lane": 3}, r"no option lane \(do you mean lanes\?\): choose from actors, "),
        ({"maxInFlight": 3}, r"do you mean max_in_flight\?"),
        ({"has_origin": None}, "no option has_origin"),
        ({"secrets": "one text"}, r"secrets=\[secret\], or secrets=text"),
        ({"secrets": b"one text"}, r"secrets=\[secret\], or secrets=text"),
        ({"secrets": lambda: "one text"}, r"secrets=\[secret\], or secrets=text"),
        ({"secrets": 3}, "secrets must be a list of secrets, not an int"),
        ({"actors": [Counter, Counter]}, "two kinds of actors"),
    ],
)
async def test_settings_that_do_not_fit_say_so(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        ActorHost.open(options.pop("store", "memory:"), **options)


async def test_a_host_without_origin_runs_actors_and_refuses_jobs() -> None:
    async with ActorHost.open("memory:", actors=[Counter]) as host:
        assert await host.actor(Counter, "x").add(1) == 1
        with pytest.raises(
            OriginNotConfiguredError, match=r"open the host with origin=\.\.\., or give the job a queue"
        ):
            await host.scheduler().run_after(1, "work:run")


async def test_names_are_checked_and_a_closed_host_says_so() -> None:
    host = ActorHost.open(MemoryProvider(), actors=[Counter])
    with pytest.raises(InvalidInputError, match="an instance name must match"):
        host.scheduler("no/slash")
    with pytest.raises(HostClosedError, match="not open: enter it with `async with host:`"):
        await host.actor(Counter, "x").add(1)


async def test_every_error_is_a_tocsin_error_with_a_code() -> None:
    async with ActorHost.open("memory:", origin="http://127.0.0.1:1", insecure=True) as host:
        with pytest.raises(TocsinError) as caught:
            await host.scheduler().run_after(-1, "work:run")

    assert (caught.value.code, caught.value.status) == ("INVALID_INPUT", 400)
