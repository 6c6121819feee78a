"""Jobs that a server is to accept: each request has a key under which it happens once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from tocsin.actors.client.answers import Results
from tocsin.actors.client.bodies import job_body
from tocsin.actors.client.server import ALWAYS, Server
from tocsin.actors.scheduler.client.port import Submitted
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.actors.scheduler.transitions.kept_answers import Kept, KeptForm
from tocsin.dispatch.refusals import Refusal, refusal
from tocsin.errors import TocsinError, UnreachableError

T = TypeVar("T")


class ServerJobs:
    """Accepts checked jobs of one scheduler of a server."""

    def __init__(self, server: Server, name: str, now_ms: Callable[[], int]) -> None:
        self._server, self._name, self._now_ms = server, name, now_ms

    async def submit(self, job: NewJob) -> Scheduled:
        """Have one job stored."""
        return await self._post("schedule", Scheduled, job_body(job), self._server.new_key())

    async def submit_many(self, jobs: Sequence[NewJob]) -> Submitted:
        """Have jobs stored in one commit."""
        if not jobs:
            return Submitted([])
        answers = await self._batch(jobs, self._server.new_key(), self._now_ms())
        refused = {place: Refusal.of(one) for place, one in enumerate(answers) if isinstance(one, TocsinError)}
        return Submitted([one for one in answers if isinstance(one, Scheduled)], refused)

    async def submit_once(self, jobs: Sequence[NewJob], *, key: bytes, body: bytes, form: KeptForm) -> Kept:
        """Have jobs stored once for a request: under its key the server keeps its own answer, which is written in this
        form here."""
        answer = form(await self._batch(jobs, key.hex(), None))
        if isinstance(answer, TocsinError):
            raise answer
        return answer

    async def first_answer(self, *, key: bytes, body: bytes) -> Kept | None:
        """Return None: a server gives its kept answer only to the whole request, which `submit_once` sends again."""
        return None

    async def _batch(self, jobs: Sequence[NewJob], key: str, now: int | None) -> list[Scheduled | TocsinError]:
        bodies = [job_body(job, now) for job in jobs]
        found = await self._post("schedule/batch", Results, {"jobs": bodies}, key)
        if len(found.results) != len(jobs):
            raise UnreachableError(f"{self._server.base} did not answer each of {len(jobs)} jobs")
        return [self._answer(one) for one in found.results]

    def _post(self, route: str, kind: type[T], said: Any, key: str) -> Coroutine[Any, Any, T]:
        """Ask until it is answered; under its key the request happens once."""
        once = partial(self._server.post, self._name, route, kind, said, key=key)
        return once(rescue=partial(self._server.again, once=once, again=ALWAYS))

    def _answer(self, one: dict[str, Any]) -> Scheduled | TocsinError:
        if "error" not in one:
            return msgspec.convert(one, Scheduled)
        refused = refusal(400, one, self._server.base)
        if isinstance(refused, UnreachableError):
            raise refused
        return refused
