"""Describe a caller's action in plain English, for errors that say who may not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DEEDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "schedule": "schedule jobs",
        "cancel": "cancel jobs",
        "cancel_all": "cancel jobs in bulk",
        "reschedule": "move jobs",
        "get": "read jobs",
        "list": "list jobs",
        "why": "ask why a job does not run",
        "history": "read the history of jobs",
        "result": "read results of jobs",
        "dead": "list dead jobs",
        "dead_retry": "retry dead jobs",
        "dead_retry_all": "retry dead jobs in bulk",
        "dead_cancel": "cancel dead jobs",
        "redrive": "look at bulk retries",
        "redrive_stop": "stop bulk retries",
        "complete": "settle jobs",
        "extend": "extend leases",
        "claim": "claim jobs",
        "announce": "report a worker",
        "workers": "list workers",
        "queues": "list queues",
        "pending": "ask for pending jobs",
        "status": "read the status",
        "catalog": "read the catalog",
        "pool": "read pools",
        "set_pool": "set pools",
        "delete_pool": "delete pools",
        "pause": "pause or resume an instance",
        "remove": "remove an instance",
        "instances": "list instances",
        "schedules.put": "define schedules",
        "schedules.get": "read schedules",
        "schedules.list": "list schedules",
        "schedules.delete": "delete schedules",
        "schedules.pause": "pause schedules",
        "schedules.resume": "resume schedules",
        "schedules.trigger": "trigger schedules",
        "schedules.occurrences": "list occurrences of schedules",
        "schedules.preview": "preview cron expressions",
    }
)
"""By the action of an operation: the name of the Python method."""


def deed(action: str) -> str:
    """Return what may not be done, as it stands behind `may not`."""
    return DEEDS.get(action, action)
