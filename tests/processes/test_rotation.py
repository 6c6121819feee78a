"""Secrets and tokens are rotated under load, with real processes: no delivery and no request fails."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.processes import tocsin_serve
from tests.processes.server_process import receiver_process
from tocsin.cli.keys import new_secret

pytestmark = pytest.mark.anyio

CLIENTS = 3
QUEUED = 150
SPREAD_MS = 3_500
"""Jobs that wait from the start are due all through the rotation."""
TRAFFIC_S = 0.4
PATIENCE_S = 20.0


def put(path: Path, *lines: str) -> None:
    """Swapped in one step, as a deployment does it."""
    beside = path.with_name(f".{path.name}")
    beside.write_text("\n".join(lines) + "\n")
    beside.rename(path)


@dataclass
class Load:
    """Clients that schedule without a pause, each with the token they have been told of last."""

    client: httpx.AsyncClient
    token: str
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    with_token: Counter[str] = field(default_factory=Counter)
    ended: bool = False
    switched: asyncio.Event = field(default_factory=asyncio.Event)

    async def post(self, jobs: list[dict[str, Any]]) -> None:
        token = self.token
        headers = {"authorization": f"Bearer {token}"}
        answer = await self.client.post("/schedule/batch", json={"jobs": jobs}, headers=headers)
        self.with_token[token] += 1
        if self.with_token[self.token] > CLIENTS:
            self.switched.set()
        if answer.status_code == 200:
            self.accepted += [one["id"] for one in answer.json()["results"]]
        else:
            self.refused.append(answer.text)

    async def run(self) -> None:
        while not self.ended:
            await self.post([{"functionPath": "p", "delayMs": delay} for delay in (0, 0, 1_500)])
            await asyncio.sleep(0.06)

    async def switch(self, token: str) -> None:
        """Until nobody uses the other token any more."""
        self.token = token
        self.switched.clear()
        async with asyncio.timeout(PATIENCE_S):
            await self.switched.wait()


async def test_secrets_and_tokens_rotate_under_load_without_one_failure(tmp_path: Path) -> None:
    old, new = new_secret(), new_secret()
    old_token, new_token = "old-token-" + "o" * 32, "new-token-" + "n" * 32
    ours, theirs, tokens = (tmp_path / name for name in ("secrets", "receiver-secrets", "tokens"))
    put(ours, old)
    put(theirs, old)
    put(tokens, f"app:schedule+read:{old_token}")
    files = {"TOCSIN_SECRETS_FILE": str(ours), "TOCSIN_TOKENS_FILE": str(tokens)}
    with (
        receiver_process("tests.processes.verifying_receiver", str(theirs), str(tmp_path / "log")) as origin,
        tocsin_serve(cwd=tmp_path, TOCSIN_ORIGIN_URL=origin, **files) as server,
    ):
        async with httpx.AsyncClient(base_url=server.url(), trust_env=False, timeout=PATIENCE_S) as client:
            load = Load(client, old_token)
            await load.post([{"functionPath": "p", "delayMs": n * SPREAD_MS // QUEUED} for n in range(QUEUED)])
            clients = [asyncio.create_task(load.run()) for _ in range(CLIENTS)]
            await asyncio.sleep(TRAFFIC_S)

            put(ours, new, old)  # the server sees it by itself
            put(tokens, f"app:schedule+read:{old_token}", f"app:schedule+read:{new_token}")
            await asyncio.to_thread(server.line_with, "2 secrets and 2 tokens from now on")
            await asyncio.sleep(TRAFFIC_S)

            put(theirs, old, new)
            await load.switch(new_token)
            await asyncio.sleep(TRAFFIC_S)
            put(theirs, new)
            await asyncio.sleep(TRAFFIC_S)

            put(ours, new)
            put(tokens, f"app:schedule+read:{new_token}")
            server.process.send_signal(signal.SIGHUP)
            await asyncio.to_thread(server.line_with, "1 secret and 1 token from now on")
            late = await client.get("/status", headers={"authorization": f"Bearer {old_token}"})
            await asyncio.sleep(TRAFFIC_S)

            load.ended = True
            await asyncio.gather(*clients)
            status = await when_idle(load)
            histories = [await outcomes(load, job_id) for job_id in load.accepted]

    arrived = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]

    assert load.refused == []
    assert late.status_code == 401
    assert len(load.accepted) > 300
    assert sorted(one["id"] for one in arrived) == sorted(load.accepted)
    assert [one for one in arrived if not one["genuine"] or one["attempt"] != 1] == []
    assert {(one["signatures"], one["known"]) for one in arrived} >= {(1, 1), (2, 1), (2, 2)}  # in every phase
    assert Counter(histories) == {("done",): len(load.accepted)}
    assert (status["backlog"], status["inFlight"], status["dead"]) == (0, 0, 0)


async def when_idle(load: Load) -> dict[str, Any]:
    """The status once nothing waits or runs, or when patience ends; polled, since it is another process that works."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        status: dict[str, Any] = (await ask(load, "/status")).json()
        if status["backlog"] == status["inFlight"] == 0 or asyncio.get_running_loop().time() > deadline:
            return status
        await asyncio.sleep(0.05)


async def ask(load: Load, route: str) -> httpx.Response:
    return await load.client.get(route, headers={"authorization": f"Bearer {load.token}"})


async def outcomes(load: Load, job_id: str) -> tuple[str, ...]:
    """How the attempts of a job ended."""
    attempts = (await ask(load, f"/history?id={job_id}")).json()["attempts"]
    return tuple(one["outcome"] for one in attempts)
