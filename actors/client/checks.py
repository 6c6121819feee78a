"""Checks of jobs for a server: all that can be known here. What depends on the server is checked there."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from tocsin.actors.scheduler.client.job_checks import JobChecks
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.catalog_check import CatalogCheck
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.dispatch.clock import DispatchClock
from tocsin.dispatch.trace_context import Trace
from tocsin.dispatch.tracing import Tracing
from tocsin.errors import InvalidInputError

_NO_USER: Final = "there is no 'initiator' over HTTP: the server's token says who asks"


class Delayed(int):
    """An instant that a caller gave as a delay: the server counts it from its own now."""

    delay_ms: int


class ServerChecks(JobChecks):
    """The checks of a scheduler that is elsewhere: it may have a catalog and an origin, and other clocks."""

    def __init__(self, clock: DispatchClock, random: Random, name: str, tracing: Tracing) -> None:
        super().__init__(CatalogCheck(None, clock.monotonic), random, clock.now_ms, instance=name, tracing=tracing)

    knows_now = False

    def delayed(self, now: int, delay_ms: int, name: str) -> int:
        due = Delayed(arguments.delayed(now, delay_ms, name))
        due.delay_ms = delay_ms
        return due

    def options(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        if given.get("initiator") is not None:
            raise InvalidInputError(_NO_USER)
        return super().options(given)

    def new_job(
        self,
        path: str | None,
        workflow: str | None,
        args: bytes,
        due: int,
        options: Mapping[str, Any],
        *,
        now: int,
        initiator: tuple[str, str] = ("", ""),
        relative: bool = False,
        trace: Trace | None = None,
        parent: Trace | None = None,
    ) -> NewJob:
        new = super().new_job(
            path, workflow, args, due, options, now=now, initiator=initiator, relative=relative, trace=trace,
            parent=parent,
        )  # fmt: skip
        if new.job.initiator != ("", ""):  # of a row of an outbox
            raise InvalidInputError(_NO_USER)
        return new

    def check_schedule(self, new: NewSchedule) -> None:
        if new.definition.initiator != ("", ""):
            raise InvalidInputError(_NO_USER)
