"""Checked jobs that are accepted, and stored."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.client.instance import Instance
from tocsin.actors.scheduler.client.port import Submitted
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.actors.scheduler.transitions.events import Submit, SubmitOnce
from tocsin.actors.scheduler.transitions.idempotency import Once, answered
from tocsin.actors.scheduler.transitions.kept_answers import Kept, KeptForm
from tocsin.dispatch.refusals import Refusal
from tocsin.errors import PayloadTooLargeError, StoreError, StoreFull, TocsinError
from tocsin.storage.api import StoreProvider


class LocalJobs:
    """Accepts jobs of one scheduler."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._store: StoreProvider | None = None  # once it is known

    async def submit(self, job: NewJob) -> Scheduled:
        """Store one checked job."""
        self._check_space()
        answer = (await self._instance.host.call(self._instance.id, Submit([job])))[0]
        if isinstance(answer, TocsinError):
            raise answer
        return answer

    async def submit_many(self, jobs: Sequence[NewJob]) -> Submitted:
        """Store jobs in one commit."""
        self._check_space()
        if not jobs:
            return Submitted([])
        _check_size(jobs)
        answers = await self._instance.call(Submit(jobs))
        refused = {place: Refusal.of(one) for place, one in enumerate(answers) if isinstance(one, TocsinError)}
        return Submitted([one for one in answers if isinstance(one, Scheduled)], refused)

    async def submit_once(self, jobs: Sequence[NewJob], *, key: bytes, body: bytes, form: KeptForm) -> Kept:
        """Store jobs once for a request. The status and body of its one answer."""
        try:
            self._check_space()
        except StoreError:
            if not await self._answered(key):
                raise
        _check_size(jobs)
        return await self._once(jobs, Once(key, body, form))

    async def first_answer(self, *, key: bytes, body: bytes) -> Kept | None:
        """Return the answer that such a request has had already, or None."""
        if not await self._answered(key):
            return None
        none = TocsinError("no answer is kept any more")
        try:
            return await self._once([], Once(key, body, lambda _: none))
        except TocsinError as error:
            if error is none:
                return None
            raise

    async def _answered(self, key: bytes) -> bool:
        return await answered(self._instance.view(), key, self._instance.now_ms())

    async def _once(self, jobs: Sequence[NewJob], once: Once) -> Kept:
        answer = await self._instance.service.renderers.ask(
            once.render, lambda number: self._instance.call(SubmitOnce(jobs, once.key, once.body, number))
        )
        if isinstance(answer, TocsinError):
            raise answer
        return answer

    def _check_space(self) -> None:
        if self._store is None:
            self._store = self._instance.store()
        if (trouble := self._store.trouble) is None:
            return
        if isinstance(trouble, StoreFull):
            raise StoreFull(f"{trouble.message}; what is under way goes on")
        raise type(trouble)(trouble.message, **trouble.details)


def _check_size(jobs: Sequence[NewJob]) -> None:
    size = labels = 0
    paths: set[str] = set()
    for new in jobs:
        job = new.job
        size += new.size
        labels += len(job.labels)
        paths.add(job.function_path or job.target)
        if job.chained:
            paths.update(job.chained)
    if size > arguments.MAX_BATCH_BYTES:
        raise PayloadTooLargeError(
            f"these jobs are {size} bytes, at most {arguments.MAX_BATCH_BYTES} fit one call: send them in parts",
            limit=arguments.MAX_BATCH_BYTES,
        )
    if labels > arguments.MAX_BATCH_LABELS:
        raise PayloadTooLargeError(
            f"these jobs have {labels} labels together, at most {arguments.MAX_BATCH_LABELS} fit one call: "
            "send them in parts",
            limit=arguments.MAX_BATCH_LABELS,
        )
    if len(paths) > arguments.MAX_BATCH_PATHS:
        raise PayloadTooLargeError(
            f"these jobs, and what is to follow them, have {len(paths)} different function paths, at most "
            f"{arguments.MAX_BATCH_PATHS} fit one call: send them in parts",
            limit=arguments.MAX_BATCH_PATHS,
        )
