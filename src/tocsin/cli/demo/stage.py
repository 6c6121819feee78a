"""The demo's ends in one process, talking over loopback sockets: a receiver of signed callbacks, a worker that pulls,
and a host with its HTTP face. Everything the demo does, it does over HTTP, as a user would."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx

from tocsin.actors.actor_host import ActorHost
from tocsin.cli.demo.plan import BEAT, BEAT_DEFINITION, POOL, Plan, plan
from tocsin.cli.demo.receiver import Receiver
from tocsin.cli.demo.report import Outcome
from tocsin.cli.demo.screen import Picture, Screen, screen
from tocsin.cli.demo.worker import Pulled
from tocsin.cli.failure import Refused
from tocsin.cli.http_server import bind, serving
from tocsin.cli.keys import new_secret
from tocsin.cli.output import now_ms
from tocsin.dispatch.signing import Signer

if TYPE_CHECKING:
    from rich.console import Console

CALLBACK_PATH: Final = "/_tocsin/callback"
LOOK_EVERY_S: Final = 0.1
PATIENCE_S: Final = 9.0
"""Time after the last due instant within which every job must be settled."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Both ends, running: a client of the server, and the receiver behind `origin`."""

    client: httpx.AsyncClient
    receiver: Receiver
    pulled: Pulled
    origin: str


async def perform(directory: Path, spread_ms: int, console: Console) -> Outcome:
    """Run the whole demo and return its outcome. CancelledError if a signal ended it, after cleaning up."""
    cancelled_by_signals()
    async with AsyncExitStack() as stack:
        stage = await set_up(stack, directory, new_secret())
        jobs = plan(now_ms(), spread_ms)
        await schedule(stage.client, jobs)
        where = [
            f"server    {str(stage.client.base_url).rstrip('/')}",
            f"receiver  {stage.origin}{CALLBACK_PATH}, signed",
            f"store     {directory / 'demo.db'}, deleted at the end",
        ]
        with screen(console, "tocsin demo", where) as shown:
            picture = await _watch(stage, jobs, spread_ms / 1000 + PATIENCE_S, shown)
            _answer(await stage.client.delete(f"/schedules/{BEAT}"))
            picture = await _watch(stage, jobs, PATIENCE_S, shown, since_ms=picture.elapsed_ms)  # for the last slot
        dead = (await _ask(stage.client, "/dead"))["records"]
        slots = (await _ask(stage.client, f"/schedules/{BEAT}/occurrences?limit=1000"))["occurrences"]
        return Outcome.of(jobs, stage.receiver, stage.pulled, picture, dead, slots, directory)


def cancelled_by_signals() -> None:
    """Cancel the demo on other signals than SIGINT, which the runner handles; they would leave its files behind."""
    task = asyncio.current_task()
    assert task is not None
    for name in ("SIGTERM", "SIGHUP"):
        with suppress(NotImplementedError, AttributeError):  # Windows
            asyncio.get_running_loop().add_signal_handler(getattr(signal, name), task.cancel)


async def set_up(stack: AsyncExitStack, directory: Path, token: str | None) -> Stage:
    """Start the receiver, then the host that calls it, then its HTTP API; stop them in the opposite order. Without a
    token the server answers everything on this machine."""
    secret = new_secret()
    receiver = Receiver(Signer([secret]), CALLBACK_PATH)
    origin = await stack.enter_async_context(serving(receiver.app(), bind("127.0.0.1", 0)))
    host = await stack.enter_async_context(
        ActorHost.open(
            f"sqlite:///{directory / 'demo.db'}", origin=origin, callback_path=CALLBACK_PATH, secrets=[secret]
        )
    )
    app = host.asgi(insecure=True) if token is None else host.asgi(tokens=[f"demo:admin:{token}"])
    url = await stack.enter_async_context(serving(app, bind("127.0.0.1", 0)))
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    client = await stack.enter_async_context(
        httpx.AsyncClient(base_url=url, headers=headers, timeout=5.0, trust_env=False)
    )
    pulled = Pulled()
    await stack.enter_async_context(pulled.worker(url, token))
    return Stage(client, receiver, pulled, origin)


async def schedule(client: httpx.AsyncClient, jobs: Plan) -> None:
    """Schedule the jobs of a plan, and the schedule."""
    answer = _answer(await client.post("/schedule/batch", json={"jobs": list(jobs.jobs)}))
    refused = [result["error"] for result in answer["results"] if "error" in result]
    if refused:
        raise Refused(f"the server refused {len(refused)} of {jobs.total} jobs: {refused[0].get('message')}")
    _answer(await client.put(f"/schedules/{BEAT}", json=dict(BEAT_DEFINITION)))


async def _ask(client: httpx.AsyncClient, route: str) -> Any:
    return _answer(await client.get(route))


def _answer(response: httpx.Response) -> Any:
    if not response.is_success:
        raise Refused(f"{response.request.url.path} answered {response.status_code}: {response.text[:500]}")
    return response.json()


async def _watch(stage: Stage, jobs: Plan, patience_s: float, shown: Screen, *, since_ms: int = 0) -> Picture:
    """Poll ten times a second until every job is settled or time is up; return the last picture."""
    clock = asyncio.get_running_loop()
    began = clock.time() - since_ms / 1000
    deadline = clock.time() + patience_s
    while True:
        picture = _picture(stage, jobs, await _ask(stage.client, "/status"), clock.time() - began)
        shown.show(picture)
        if picture.settled or clock.time() > deadline:
            return picture
        await asyncio.sleep(LOOK_EVERY_S)


def _picture(stage: Stage, jobs: Plan, status: Any, elapsed_s: float) -> Picture:
    receiver = stage.receiver
    pool: dict[str, int] = next((each for each in status["pools"] if each["name"] == POOL), {})
    return Picture(
        elapsed_ms=round(elapsed_s * 1000),
        total=jobs.total,
        waiting=status["backlog"],
        in_flight=status["inFlight"],
        pool_in_flight=pool.get("inFlight", 0),
        pool_queued=pool.get("queued", 0),
        delivered=receiver.delivered,
        retried=receiver.retried,
        dead=status["dead"],
        pulled=len(stage.pulled.done),
        slots=len(receiver.slots),
        recent=tuple(receiver.deliveries),
    )
