"""A server as the place where jobs go: a drain in a process without a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tocsin.actors.outbox.target import Answers, Refused
from tocsin.dispatch.refusals import refusal
from tocsin.dispatch.server_client import ServerClient, json_object, succeeded
from tocsin.errors import UnreachableError


class OutboxClient(ServerClient):
    """`Drain(database, OutboxClient(url, token=...))` brings rows of all instances to that server.

    The token needs the scopes `schedule` and `read`. `transport`, an httpx one, reaches an app in this process.
    `ca_file` names a PEM file of authorities that are trusted beside the system's. Use it with `async with`, outside
    the drain's.
    """

    @property
    def base(self) -> str:
        """Return the server's URL."""
        return self._base

    def scheduler(self, name: str = "default") -> RemoteTarget:
        """Return one instance of the server."""
        return RemoteTarget(self, name)

    async def get(self, instance: str, route: str, **parameters: str) -> dict[str, Any]:
        return await self._ask("GET", instance, route, params=parameters)

    async def post(self, instance: str, route: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        return await self._ask("POST", instance, route, content=body, headers=headers)

    async def _ask(self, method: str, instance: str, route: str, **request: Any) -> dict[str, Any]:
        """Return the server's answer. UnreachableError if no tocsin server answered."""
        answer = await self._request(method, instance, route, **request)
        found = json_object(answer)
        if succeeded(answer) and found is not None:
            return found
        raise refusal(answer.status, found, self._base)


class RemoteTarget:
    """A `Target` over HTTP."""

    def __init__(self, client: OutboxClient, name: str) -> None:
        self.name, self._client = name, client

    async def submit_batch(self, jobs: Sequence[tuple[str, str]], key: str) -> Answers:
        body = b'{"jobs":[%b]}' % b",".join(job.encode() for _, job in jobs)
        answer = await self._client.post(self.name, "schedule/batch", body, {"idempotency-key": key})
        results = answer.get("results")
        if not isinstance(results, list) or len(results) != len(jobs):
            raise UnreachableError(f"{self._client.base} did not answer each of {len(jobs)} jobs")
        return {row: self._refused(result) for (row, _), result in zip(jobs, results, strict=True)}

    async def knows(self, job_id: str, since: int | None) -> bool:
        record = (await self._client.get(self.name, "get", id=job_id)).get("record")
        if record is not None and (since is None or record["enqueuedAt"] >= since):
            return True
        history = await self._client.get(self.name, "history", id=job_id)
        return any(since is None or attempt["ended"] >= since for attempt in history["attempts"])

    def _refused(self, result: dict[str, Any]) -> Refused | None:
        if "error" not in result:
            return None
        error = refusal(400, result, self._client.base)
        if isinstance(error, UnreachableError):
            raise error
        return Refused.by(error)
