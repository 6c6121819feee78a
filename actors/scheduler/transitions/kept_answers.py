"""The one answer that is kept for a request with an Idempotency-Key: in which form it is written, as data.

So a request can be answered by another process than the one that took it. What these write is read by every later
version: it lies in stores for a day.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.errors import QuotaExceededError, RequestError, ThrottledError, TocsinError

Answer = Scheduled | TocsinError
Kept = tuple[int, bytes]
"""Status and body of an answer."""
REASON_MAX: Final = 300
"""Characters kept of why a job was refused: the answers of a batch must fit one row of the store."""
PLAIN: Final = 4 * 1024
_COMPRESSED: Final = b"\x78"
_encoder: Final = msgspec.json.Encoder(enc_hook=str)


def pack(text: bytes) -> bytes:
    """Return an answer as it is kept to be given again: a long one is compressed."""
    return text if len(text) <= PLAIN else zlib.compress(text)


def unpack(kept: bytes) -> bytes:
    """Return a kept answer as it was. JSON never begins like compressed text."""
    return zlib.decompress(kept) if kept[:1] == _COMPRESSED else kept


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """Why a job was not accepted. `final`: the job itself is at fault, so a try is counted; otherwise it is the
    scheduler (its quota is used up, it has no origin), and the job waits until that has changed."""

    code: str
    message: str
    final: bool

    @classmethod
    def by(cls, error: TocsinError) -> Refused:
        final = isinstance(error, RequestError) and error.status < 500 and not isinstance(error, QuotaExceededError)
        code = error.details.get("code", error.code)  # as a server said it that knows more of them
        # As a column of text can hold it, whoever's words they are.
        message = error.message[:REASON_MAX].encode("utf-8", "replace").decode().replace("\0", " ")
        return cls(str(code), message, final)


class OneAnswer(msgspec.Struct, frozen=True, tag="one"):
    """Of one job: the body of the answer to `POST /schedule`."""

    def __call__(self, answers: Sequence[Answer]) -> Kept | TocsinError:
        (answer,) = answers
        if isinstance(answer, (QuotaExceededError, ThrottledError)):
            return answer  # not kept: with the same key it may pass later
        if isinstance(answer, TocsinError):
            return answer.status, _encoder.encode(answer.to_dict())
        return 200, _encoder.encode(answer)


class BatchAnswers(msgspec.Struct, frozen=True, tag="batch"):
    """Of several: the body of the answer to `POST /schedule/batch`, where those in `refused`, by their places, were no
    jobs to submit."""

    refused: Mapping[int, dict[str, Any]] = {}

    def __call__(self, answers: Sequence[Answer]) -> Kept:
        return 200, pack(_encoder.encode({"results": self.results(answers)}))

    def results(self, answers: Sequence[Answer]) -> list[Any]:
        """Put the answers in the order of the request."""
        left = iter(answers)
        return [
            self.refused[place] if place in self.refused else _said(next(left))
            for place in range(len(answers) + len(self.refused))
        ]


class RowAnswers(msgspec.Struct, frozen=True, tag="rows"):
    """Of jobs out of rows: by row, why its job was refused."""

    rows: Sequence[str]

    def __call__(self, answers: Sequence[Answer]) -> Kept:
        said = {
            row: Refused.by(answer) if isinstance(answer, TocsinError) else None
            for row, answer in zip(self.rows, answers, strict=True)
        }
        return 200, zlib.compress(msgspec.json.encode(said))


KeptForm = OneAnswer | BatchAnswers | RowAnswers


def _said(answer: Answer) -> Scheduled | dict[str, Any]:
    return answer.to_dict() if isinstance(answer, TocsinError) else answer
