"""What users hold has only what users call; HTTP and the outbox stand on the port below it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, Final, get_type_hints

import pytest

import tocsin
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin import Deferred, Job, Outbox, Scheduler, Schedules
from tocsin.actors.scheduler.client.job_checks import JobOptions
from tocsin.actors.scheduler.client.port import ChangesPort, JobsPort, QueuesPort, ReadsPort, SchedulesPort
from tocsin.errors import InvalidInputError

ROOT: Final = Path(__file__).resolve().parents[3]
MAKING: Final = {"run_at", "run_after", "run_debounced", "submit_many", "deferred", "task"}
CHANGING: Final = {"cancel", "cancel_all", "reschedule", "complete", "settle", "extend"}
DEAD: Final = {
    "dead", "dead_retry", "dead_retry_all", "dead_cancel", "dead_cancel_all", "dead_groups", "redrive", "redrive_stop",
}  # fmt: skip
PULLING: Final = {"claim", "queues", "pending", "result", "announce", "workers"}
READING: Final = {"name", "get", "list", "list_all", "status", "why", "history", "audit", "activity", "changes"}
OPERATING: Final = {
    "pools",
    "pool",
    "set_pool",
    "delete_pool",
    "set_queue",
    "free_slot",
    "pause",
    "set_instance",
    "remove",
    "undo",
}
OF_SCHEDULER: Final = {"schedules", "groups", "clock", *MAKING, *CHANGING, *DEAD, *PULLING, *READING, *OPERATING}
OF_SCHEDULES: Final = {
    "put", "register", "get", "list", "pause", "resume", "delete", "trigger", "occurrences", "preview",
    "backfill", "backfills", "backfill_stop",
}  # fmt: skip
HTTP_STANDS_ON: Final = {
    "changes",
    "feed",
    "jobs",
    "port",
    "queues",
    "reads",
    "schedules_port",
    "submitting",
    "job_checks",
    "source",
}
"""Modules of `client`: the port and its parts, and what the host of a request says of its answer, which is data."""


NO_METHODS: Final = {"name", "schedules", "clock"}


def public(one: object) -> set[str]:
    return {name for name in dir(one) if not name.startswith("_")}


@on_simulated_host()
async def test_a_scheduler_has_what_users_call_and_nothing_else(sim: SimulatedHost) -> None:
    assert public(sim.jobs) == OF_SCHEDULER
    assert public(sim.jobs.schedules) == OF_SCHEDULES
    assert type(sim.jobs) is Scheduler


def test_the_page_has_every_public_method_and_no_other() -> None:
    page = (ROOT / "docs" / "methods.md").read_text("utf-8")
    table = page[page.index("| method | what it does |") :].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    recurring = cells.pop()
    assert {name for cell in cells for name in re.findall(r"`(\w+)\(", cell)} == OF_SCHEDULER - {
        "name",
        "schedules",
        "groups",
        "clock",
    }
    assert {name.removeprefix("schedules.") for name in re.findall(r"`([\w.]+)", recurring)} == OF_SCHEDULES


def test_every_public_method_says_what_it_does_and_has_types() -> None:
    for kind in (Scheduler, Schedules, JobsPort, ChangesPort, ReadsPort, QueuesPort, SchedulesPort):
        for name in public(kind):
            one = getattr(kind, name)
            assert inspect.getdoc(one), f"{kind.__name__}.{name}"
            if callable(one):
                signature = inspect.signature(one)
                untyped = [part for part in signature.parameters.values() if part.annotation is part.empty]
                assert [part.name for part in untyped] == ["self"], name


def test_run_at_has_the_same_options_wherever_it_stands() -> None:
    for kind in (Scheduler, Deferred, Outbox):
        for method in (kind.run_at, kind.run_after):
            assert get_type_hints(method)["options"].__args__ == (JobOptions,)


@pytest.mark.parametrize("room", ["http", "outbox"])
def test_the_rooms_above_stand_on_the_port_and_not_on_the_handle(room: str) -> None:
    source = (Path(tocsin.__file__).parent / "actors" / room).glob("*.py")
    imported = {
        module
        for file in source
        for module in re.findall(
            r"^from tocsin\.actors\.scheduler\.client\.(\w+) import", file.read_text(), re.MULTILINE
        )
    }
    also = {"http": set[str](), "outbox": {"job_checks", "scheduler"}}[room]  # a drain is handed a Scheduler by users
    assert imported <= HTTP_STANDS_ON | also
    assert {"http": "port", "outbox": "job_checks"}[room] in imported


NEAR: Any = {"maxConcurrency": "max_concurrency", "keepResultMs": "keep_result", "timout_ms": "timeout_ms"}


@on_simulated_host()
async def test_an_option_that_does_not_exist_is_refused_with_those_that_do(sim: SimulatedHost) -> None:
    slip: Any = {"pol": "p"}
    none: Any = {"pol": None}
    for wrong in (slip, none, {"then": [Job("a:b", options=none)]}):
        with pytest.raises(InvalidInputError, match=r"unknown option 'pol'.*: choose from .*keep_result, .*pool"):
            await sim.jobs.run_after("1h", "a:b", **wrong)
    humped: Any = {"maxConcurrency": 1}
    for name, near in NEAR.items():
        misspelt: Any = {name: 1}
        with pytest.raises(InvalidInputError, match=rf"unknown option '{name}' \(do you mean {near}\?\)"):
            await sim.jobs.run_after("1h", "a:b", **misspelt)
    (refused,) = await sim.jobs.submit_many([Job("a:b", after="1h", options=none)])
    assert isinstance(refused, InvalidInputError)
    with pytest.raises(InvalidInputError, match=r"there is no argument 'pol'.*, there are .*pool"):
        await sim.jobs.schedules.put("s", "a:b", every=60, **slip)
    with pytest.raises(InvalidInputError, match=r"'maxConcurrency' \(do you mean max_concurrency\?\)"):
        await sim.jobs.schedules.put("s", "a:b", every=60, **humped)
    assert await sim.jobs.schedules.get("s") is None and (await sim.jobs.status()).backlog == 0
