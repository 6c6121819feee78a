"""Jobs as callers write them down, and what is to follow them; shared by jobs and schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tocsin.actors.scheduler.client.handle import Handle
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.followers import Follower
from tocsin.actors.scheduler.model.rows import JobRow
from tocsin.errors import InvalidInputError, OriginNotConfiguredError


class _Called(msgspec.Struct, frozen=True):
    path: str | None = None
    args: Any = {}


class Job(_Called, frozen=True, kw_only=True):
    """One job for `submit_many`: exactly one of `at` and `after`. All else that `run_at` takes by name stands in
    `options`, the id as well: `Job(path="a:b", after="5m", options={"id": "x", "queue": "q"})`. In a `then` it has no
    `at` and no id: it starts when the job before it is done, or `after` that."""

    at: datetime | int | None = None
    after: timedelta | float | str | None = None
    workflow: str | None = None
    options: Mapping[str, Any] = {}


class Following(Handle):
    """The part of a handle that checks `then`."""

    def _wire_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of Python callers in the shapes that are checked: durations in ms, `then` as it is stored."""
        given = dict(options)
        if (kept := given.pop("keep_result", None)) is not None:
            given["keep_result_ms"] = arguments.keep_result_ms(kept)
        if (then := given.get("then")) is not None:
            given["then"] = self._followers(then)
        return given

    def _followers(self, then: object) -> list[Follower]:
        if isinstance(then, (str, bytes)) or not isinstance(then, Sequence):
            raise InvalidInputError(f"then must be a list of Job, not {type(then).__name__}")
        return [self._follower(one, f"then[{n}]") for n, one in enumerate(then)]

    def _follower(self, job: Job, place: str) -> Follower:
        if not isinstance(job, Job):
            raise InvalidInputError(f"{place} must be a Job, not {type(job).__name__}")
        if job.at is not None:
            raise InvalidInputError(f"{place}.at: what follows a job starts when that is done, or `after` it")
        delay = 0 if job.after is None else arguments.duration_ms(job.after, f"{place}.after")
        with arguments.naming(place):
            return self.follower(
                function_path=job.path, workflow=job.workflow, args=arguments.encode_args(job.args),
                delay_ms=delay, options=self._wire_options(job.options),
            )  # fmt: skip

    def follower(
        self,
        *,
        function_path: str | None,
        workflow: str | None,
        args: bytes,
        delay_ms: int,
        options: Mapping[str, Any],
    ) -> Follower:
        """A checked job of a `then`; for the HTTP face."""
        self._check_origin(options)
        made = arguments.follower(
            function_path=function_path, workflow=workflow, args=args, delay_ms=delay_ms,
            minted=self._mint(self._now()), options=options,
        )  # fmt: skip
        self._check_catalog(made.job, args)
        return made

    def _check_catalog(self, job: JobRow, args: bytes) -> None:
        self._service.catalog_check.check(job, args)

    def _mint(self, now: int) -> str:
        return arguments.mint_id(now, self._service.random.getrandbits(80))

    def _check_origin(self, options: Mapping[str, Any]) -> None:
        if options.get("queue") is None and not self._service.has_origin():
            raise OriginNotConfiguredError(
                "callbacks have nowhere to go: open the host with origin=..., set TOCSIN_ORIGIN_URL, or give the job a "
                "queue, from which a worker pulls it"
            )
