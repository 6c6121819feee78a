"""Scheduling: a job, or a thousand in one commit."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin.actors.http.body import BATCH_BODY, SCHEDULE_BODY, parse
from tocsin.actors.http.job_requests import new_job
from tocsin.actors.http.request import Call, Once
from tocsin.actors.http.response_models import BatchResults
from tocsin.actors.http.responses import Written, write
from tocsin.actors.http.wire_jobs import BatchRequest, ScheduleRequest
from tocsin.actors.scheduler.client.submitting import submit_all
from tocsin.actors.scheduler.model.damage import json_fault
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.actors.scheduler.transitions.idempotency import damaged_answer
from tocsin.actors.scheduler.transitions.kept_answers import BatchAnswers, Kept, OneAnswer, pack, unpack
from tocsin.errors import ForbiddenError, NotAnsweredYetError, PayloadTooLargeError, RequestError, TocsinError

CHECKED_AT_ONCE: Final = 64 * 1024
"""Bytes of a batch between two looks at what else waits: checking a whole one may take seconds."""
MOST_FAULTS: Final = 32 * 1024
"""How many bytes the refusals of a batch may take, packed: a kept answer must fit one row of the store."""


async def schedule(call: Call) -> Scheduled | Written:
    request = await call.body(ScheduleRequest, SCHEDULE_BODY)
    if call.has_rule:
        for target in dict.fromkeys(request.targets()):
            await call.admit(target)
    once = call.once()
    try:
        job = new_job(call.port.checks, request, call.initiator, call.trace)
    except RequestError:
        if (first := await _first_answer(call, once)) is not None:
            return first
        raise
    if once is None:
        return await call.port.jobs.submit(job)
    return _given(await call.port.jobs.submit_once([job], **once, form=OneAnswer()))


async def _first_answer(call: Call, once: Once | None) -> Written | None:
    """Return what this request was answered before: what is refused now may have passed an earlier catalog."""
    if once is None or (kept := await call.port.jobs.first_answer(**once)) is None:
        return None
    return _given(kept)


def _given(kept: Kept) -> Written:
    status, text = kept
    try:
        text = unpack(text)
    except zlib.error:
        text = b""
    if json_fault(text) is not None:
        raise damaged_answer()
    return Written(status, text)


async def schedule_batch(call: Call) -> BatchResults | Written:
    """Answer each job, in order; those accepted are one commit."""
    request = await call.body(BatchRequest, BATCH_BODY)
    check = _BatchCheck(call)
    checked = [await check.job(raw) for raw in request.jobs]
    once = call.once()
    good = [one for one in checked if isinstance(one, NewJob)]
    if not good and (first := await _first_answer(call, once)) is not None:
        return first
    form = BatchAnswers({place: one.to_dict() for place, one in enumerate(checked) if isinstance(one, TocsinError)})
    try:
        if once is None or not good:  # where all is refused nothing happens, so nothing is kept
            return BatchResults(form.results(await submit_all(call.port.jobs, good)))
        _check_faults(list(form.refused.values()))
        return _given(await call.port.jobs.submit_once(good, **once, form=form))
    except NotAnsweredYetError as pending:
        if form.refused:
            pending.details["refused"] = [{"index": place, **one} for place, one in form.refused.items()]
        raise


def _check_faults(faults: Sequence[object]) -> None:
    if len(pack(write(faults))) > MOST_FAULTS:
        raise PayloadTooLargeError(
            f"jobs: the refusals of {len(faults)} of them are too long to be kept under an Idempotency-Key: "
            "correct them, or send fewer at once"
        )


class _BatchCheck:
    """Checks the jobs of a batch; the app's rule is asked once for each target."""

    def __init__(self, call: Call) -> None:
        self._call, self._trace = call, call.trace
        self._rulings: dict[str | None, ForbiddenError | None] = {}
        self._bytes = 0

    async def job(self, raw: msgspec.Raw) -> NewJob | TocsinError:
        """Return the checked job, or why it is refused."""
        self._bytes += len(raw)
        if self._bytes >= CHECKED_AT_ONCE:
            self._bytes = 0
            await asyncio.sleep(0)
        try:
            request = parse(raw, ScheduleRequest, "the job")
            request.check_instance(self._call.port.name)
            if self._call.has_rule:
                for target in request.targets():
                    if (refused := await self._ruling(target)) is not None:
                        return refused
            return new_job(self._call.port.checks, request, self._call.initiator, self._trace)
        except TocsinError as error:
            return error

    async def _ruling(self, target: str | None) -> ForbiddenError | None:
        if target not in self._rulings:
            try:
                await self._call.admit(target)
            except ForbiddenError as error:
                self._rulings[target] = error
            else:
                self._rulings[target] = None
        return self._rulings[target]
