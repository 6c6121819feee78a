"""An origin, a server or a heartbeat behind a private authority: trusted where its file is given, and nowhere else."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import environment
from tests.dispatch.scripted_server import CERTIFICATE, OK, always_ok, answering, scripted_server
from tests.dispatch.test_transports import post
from tocsin import ActorHost, LeaseClient, RemoteScheduler
from tocsin.actors.client.server import Server
from tocsin.actors.outbox.remote import OutboxClient
from tocsin.dispatch.certificates import trusting
from tocsin.dispatch.server_client import ServerClient
from tocsin.dispatch.transport import NeverConnected
from tocsin.dispatch.transports import NAMES, default_transport
from tocsin.errors import SettingsError, UnreachableError
from tocsin.settings import load

pytestmark = pytest.mark.anyio

DATA = Path(__file__).parent / "data"
CA_FILE = DATA / "private-ca.pem"
LEAF = DATA / "private-ca-localhost.pem"
SECRETS = ["whsec_" + "A" * 32]
SETTLED = b'HTTP/1.1 200 OK\r\ncontent-length: 31\r\n\r\n{"settled":true,"state":"done"}'


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_receiver_behind_a_private_authority(name: str, host: str) -> None:
    trusted, others = default_transport(name, ssl_context=trusting(CA_FILE)), default_transport(name)
    async with scripted_server(always_ok, certificate=LEAF) as server:
        url = server.url.replace("http://127.0.0.1", f"https://{host}")
        assert (await post(trusted, url)).body == b"ok"
        with pytest.raises(NeverConnected, match=r"(?i)certificate"):
            await post(others, url)
        await trusted.aclose()
        await others.aclose()

    assert len(server.requests) == 1


async def test_other_authorities_are_not_trusted_by_that(name: str) -> None:
    transport = default_transport(name, ssl_context=trusting(CA_FILE))
    async with scripted_server(always_ok, certificate=CERTIFICATE) as server:
        with pytest.raises(NeverConnected, match=r"(?i)certificate"):
            await post(transport, server.url.replace("http:", "https:"))
        await transport.aclose()


async def test_the_system_s_authorities_stay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))  # where OpenSSL looks for those of the system
    transport = default_transport(name, ssl_context=trusting(CA_FILE))
    for certificate in (CERTIFICATE, LEAF):
        async with scripted_server(always_ok, certificate=certificate) as server:
            assert (await post(transport, server.url.replace("http:", "https:"))).body == b"ok"
    await transport.aclose()


@pytest.mark.parametrize("name", NAMES)
async def test_a_host_calls_back_and_beats_by_its_ca_file(name: str) -> None:
    async with (
        scripted_server(always_ok, certificate=LEAF) as server,
        scripted_server(answering(OK), certificate=LEAF) as beats,
    ):
        origin = f"https://localhost:{server.port}"
        async with ActorHost.open(
            "memory:",
            origin=origin,
            secrets=SECRETS,
            transport=name,
            ca_file=CA_FILE,
            heartbeat_url=f"https://localhost:{beats.port}/beat",
        ) as host:
            await host.scheduler().run_after(0, "x", id="a", keep_result="1h")
            await host.scheduler().result("a", timeout=10)
            await beats.until(lambda: len(beats.requests) == 1)

    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", [Server, LeaseClient, OutboxClient])
async def test_clients_of_a_server_take_a_ca_file(kind: type[ServerClient]) -> None:
    async with scripted_server(always_ok, certificate=LEAF) as server:
        url = f"https://localhost:{server.port}"
        async with kind(url, ca_file=CA_FILE) as trusted, kind(url) as others:
            assert (await trusted._request("GET", "default", "get")).status == 200
            with pytest.raises(UnreachableError, match=r"(?i)certificate"):
                await others._request("GET", "default", "get")


async def test_what_a_worker_posts_is_trusted_by_a_ca_file_too() -> None:
    async with scripted_server(answering(SETTLED), certificate=LEAF) as server:
        url = f"https://localhost:{server.port}"
        async with RemoteScheduler(url, ca_file=CA_FILE) as trusted, RemoteScheduler(url, patience_s=0) as others:
            assert await trusted.complete("a", "lease")
            with pytest.raises(UnreachableError, match=r"(?i)certificate"):
                await others.complete("a", "lease")
    assert len(server.requests) == 1


@pytest.fixture(params=["missing", "garbage", "empty", "a folder", "a key only"])
def wrong(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    match request.param:
        case "garbage":
            path.write_bytes(b"\x00\x01 no certificate")
        case "empty":
            path.touch()
        case "a folder":
            path.mkdir()
        case "a key only":
            path.write_text(LEAF.read_text().partition("-----BEGIN CERTIFICATE")[0])
    return path


async def test_a_file_without_certificates_is_refused_at_the_start_and_named(wrong: Path) -> None:
    attempts: list[tuple[str, Any]] = [
        ("ca_file", lambda: ActorHost.open("memory:", ca_file=wrong)),
        ("ca_file", lambda: RemoteScheduler(ca_file=wrong)),
        ("ca_file", lambda: LeaseClient(ca_file=str(wrong))),
        ("TOCSIN_CA_FILE", lambda: load({}, {"TOCSIN_CA_FILE": str(wrong)})),
        ("--ca-file", lambda: load({"ca_file": str(wrong)}, {})),
    ]
    for called, attempt in attempts:
        with pytest.raises(SettingsError) as refused:
            attempt()
        assert refused.value.message.startswith(f"{called}: ") and str(wrong) in refused.value.message


def test_a_ca_file_in_a_settings_file_is_looked_for_beside_it(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(CA_FILE.read_bytes())
    (tmp_path / "tocsin.toml").write_text('ca_file = "ca.pem"\n')

    assert load({"config": str(tmp_path / "tocsin.toml")}, {}).ca_file == str(tmp_path / "ca.pem")


async def test_a_transport_of_one_s_own_has_its_own_certificates() -> None:
    with pytest.raises(SettingsError, match="give your own its certificates"):
        ActorHost.open("memory:", transport=default_transport(), ca_file=CA_FILE)


async def test_the_command_line_reaches_a_server_by_its_ca_file(tmp_path: Path) -> None:
    green = b'{"backlog": 0, "inFlight": 0, "due": 0, "dead": 0, "health": "green", "pools": [], "reasons": []}'
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(green), green)
    async with scripted_server(answering(answer), certificate=LEAF) as server:
        words = ("--url", f"https://localhost:{server.port}", "--json")
        trusted = await told("status", *words, "--ca-file", str(CA_FILE))
        others = await told("status", *words)
    missing = await told("status", *words, "--ca-file", str(tmp_path / "none.pem"))

    assert trusted[0] == 0 and '"green"' in trusted[1], trusted
    assert others[0] != 0 and "certificate" in others[2].lower()
    assert missing[0] == 2 and "none.pem" in missing[2]


async def told(*words: str) -> tuple[int | None, str, str]:
    command = [sys.executable, "-c", "from tocsin.cli import main; main()", *words]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment()
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()
