"""What a dedup store has on record of jobs that are done, and how their callbacks are answered from it."""

from __future__ import annotations

import logging

from tocsin.dispatch.receiver import answers
from tocsin.dispatch.receiver.dedup import AnswerKeeping, Dedup, keeps_answers
from tocsin.dispatch.transport import Answer

log = logging.getLogger("tocsin.receiver")


class Record:
    """Of one dedup store: done with an answer, and that answer once more.

    A store of the user's that was written before there were answers does all else; its log says once what it lacks.
    """

    def __init__(self, dedup: Dedup) -> None:
        self._dedup = dedup
        self._keeping: AnswerKeeping | None = dedup if keeps_answers(dedup) else None
        if self._keeping is None:
            log.warning(
                "%s keeps no answers: a job whose answer is lost ends without its result; give it `answer`, and"
                " `finish` an answer=, as tocsin.dispatch.receiver.dedup.AnswerKeeping has them",
                type(dedup).__name__,
            )

    async def finish(self, webhook_id: str, lease: str, answer: Answer, *, now_ms: int) -> bool:
        """As `Dedup.finish`."""
        if self._keeping is None:
            return await self._dedup.finish(webhook_id, lease, now_ms=now_ms)
        return await self._keeping.finish(webhook_id, lease, now_ms=now_ms, answer=answers.kept(answer))

    async def answer(self, webhook_id: str, *, now_ms: int) -> Answer:
        """How the callback of a job that is done is answered. Raises what the store raises."""
        kept = None if self._keeping is None else await self._keeping.answer(webhook_id, now_ms=now_ms)
        return answers.replayed(kept) if kept else answers.duplicate()
