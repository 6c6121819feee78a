"""A whole host with each transport: jobs name URLs of its list that lead to this machine, in every way there is. The
socket that listens here stays alone."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from tests.dispatch.addresses_here import HERE, PERMITTED, TRAP, Listener, leads_to
from tests.dispatch.scripted_server import always_ok, answering, scripted_server
from tocsin import ActorHost, AllowedUrls, Retry
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.dispatch.transports import NAMES
from tocsin.errors import InvalidInputError, JobFailedError

pytestmark = pytest.mark.anyio
SECRET = "whsec_" + "dGhlIHNlY3JldCBvZiB0aGUgc3RhZ2UgOi0p"
ONCE = Retry(max_retries=0)


def opened(transport: str, ports: Sequence[int]) -> ActorHost:
    """Its operator allows, by mistake, all names that are tried here; what is named in vain is not its networks."""
    hosts = ("127.0.0.1", "0.0.0.0", "[::1]", "[::ffff:7f00:1]", "[::]", "localhost", "*.hooks.example")
    entries = [f"http://{host}:{port}/" for host in hosts for port in ports]
    urls = AllowedUrls(entries, networks=[PERMITTED], secrets=[SECRET])
    return ActorHost.open("memory:", transport=transport, allow_urls=urls)


async def end_of(jobs: Scheduler, job_id: str) -> str:
    try:
        await jobs.result(job_id, timeout=10)
    except JobFailedError as error:
        return error.message
    return "done"


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_no_way_to_write_this_machine_leads_to_a_connection(name: str) -> None:
    listener, scheduled = Listener(), 0
    async with opened(name, [listener.port]) as host:
        jobs = host.scheduler()
        for n, written in enumerate(HERE):
            try:
                await jobs.run_after(
                    0, "a:b", id=f"j{n}", url=f"http://{written}:{listener.port}/", retry=ONCE, keep_result="1h"
                )
            except InvalidInputError:
                assert not is_address_in_full(written), written
            else:
                scheduled += 1
                assert "only public addresses are called" in await end_of(jobs, f"j{n}")
    assert scheduled == sum(map(is_address_in_full, HERE))
    assert listener.connections() == 0
    listener.close()


def is_address_in_full(written: str) -> bool:
    """Whether it is an address as all read it, or the name of this machine: the list can hold it."""
    if written.lower() == "localhost":
        return True
    try:
        return ip_address(written.strip("[]")) is not None
    except ValueError:
        return False


async def test_no_name_leads_there_whatever_it_leads_to_and_when(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()
    to_trap = b"HTTP/1.1 302 x\r\nlocation: http://127.0.0.1:%d/\r\ncontent-length: 0\r\n\r\n" % listener.port
    async with (
        scripted_server(always_ok, address=PERMITTED) as good,
        scripted_server(answering(to_trap), address=PERMITTED) as redirecting,
        opened(name, [listener.port, good.port, redirecting.port]) as host,
    ):
        jobs, ends = host.scheduler(), dict[str, str]()

        async def run(job_id: str, port: int, *leads: Sequence[str]) -> None:
            leads_to(monkeypatch, *leads)
            url = f"http://{job_id}.hooks.example:{port}/in"
            await jobs.run_after(0, "a:b", id=job_id, url=url, retry=ONCE, keep_result="1h")
            ends[job_id] = await end_of(jobs, job_id)

        await run("bad", listener.port, [TRAP])
        await run("mixed", listener.port, [PERMITTED, TRAP])
        await run("cloud", listener.port, ["169.254.169.254"])
        await run("rebinding", good.port, [PERMITTED], [TRAP])
        await run("redirected", redirecting.port, [PERMITTED], [TRAP])

    assert (good.accepted, redirecting.accepted, listener.connections()) == (1, 1, 0)
    assert ends.pop("rebinding") == "done"
    assert "redirects are not followed" in ends.pop("redirected")
    assert all("only public addresses are called" in end for end in ends.values()), ends
    assert b"webhook-signature: v1," in good.requests[0].lower()
    listener.close()
