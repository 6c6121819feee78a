"""One table of operations: handle, `Client`, `SyncClient`, HTTP, OpenAPI and command line miss none of each other's."""

from __future__ import annotations

import inspect
from typing import Any, Final, get_type_hints

import pytest

from scripts import parity
from tests.cli.command_tree import CLIENTS, TREE
from tocsin import Client, Deferred, Scheduler, Schedules, SyncClient
from tocsin.actors.client.port import ServerPort
from tocsin.actors.client.sync_clock import SyncClock
from tocsin.actors.client.sync_deferred import SyncDeferred
from tocsin.actors.client.sync_groups import SyncGroups
from tocsin.actors.client.sync_scheduler import SyncScheduler
from tocsin.actors.client.sync_schedules import SyncSchedules
from tocsin.actors.http.openapi import document
from tocsin.actors.http.operations import OPERATIONS
from tocsin.actors.scheduler.client import port as ports
from tocsin.actors.scheduler.client.clock import Clock
from tocsin.actors.scheduler.client.groups import Groups

OF_SERVERS: Final = {"openapi"}
"""Methods of clients that are about the routes themselves."""
OF_PROMETHEUS: Final = {"metrics"}
"""Routes that no handle and no command asks."""


def test_every_method_of_a_handle_has_a_row_and_every_row_a_method() -> None:
    rows = [one.method for one in parity.ROWS]
    assert len(rows) == len(set(rows))
    assert set(rows) == parity.of_handles()


def test_every_route_has_a_method_and_is_in_openapi() -> None:
    used = {name for one in parity.ROWS for name in one.routes}
    assert used == set(parity.ROUTES), used ^ set(parity.ROUTES)
    paths = document(tokens=True)["paths"]
    ids = {one["operationId"] for methods in paths.values() for one in methods.values()}
    assert {name.removesuffix("_in_instance") for name in ids} - OF_PROMETHEUS == used
    assert {one.name for one in OPERATIONS} <= used


def test_every_command_that_asks_a_server_is_an_operation_and_every_operation_has_one() -> None:
    used = {command for one in parity.ROWS for command in one.commands}
    assert used <= TREE.keys(), used - TREE.keys()
    assert set(CLIENTS) <= used, set(CLIENTS) - used
    assert all(one.commands and one.routes for one in parity.ROWS)


def test_a_client_gives_the_handle_itself_on_a_port_that_has_every_method() -> None:
    client = Client("http://127.0.0.1:9")
    jobs = client.scheduler("t")
    assert type(jobs) is Scheduler and type(jobs.schedules) is Schedules
    port = client._ports("t")
    assert isinstance(port, ServerPort)
    for part in ("jobs", "changes", "reads", "queues", "schedules"):
        wanted = get_type_hints(getattr(ports.SchedulerPort, part).fget)["return"]
        for name, method in inspect.getmembers(wanted, inspect.isfunction):
            if not name.startswith("_"):
                there = getattr(type(getattr(port, part)), name)
                assert inspect.signature(there).parameters == inspect.signature(method).parameters, (part, name)


@pytest.mark.parametrize(
    ("blocking", "kind"),
    [
        (SyncScheduler, Scheduler),
        (SyncSchedules, Schedules),
        (SyncClock, Clock),
        (SyncDeferred, Deferred),
        (SyncGroups, Groups),
    ],
)
def test_a_sync_client_has_the_same_methods_with_the_same_arguments(blocking: type, kind: type) -> None:
    names = {name for name in dir(kind) if not name.startswith("_")}
    assert {name for name in dir(blocking) if not name.startswith("_")} - {"name"} == names - {"name"}
    for name in names:
        mine, theirs = getattr(blocking, name), getattr(kind, name)
        if inspect.isfunction(theirs):
            assert not inspect.iscoroutinefunction(mine), name
            assert inspect.signature(mine).parameters == inspect.signature(theirs).parameters, name
            if inspect.iscoroutinefunction(theirs):
                assert hint(mine) == hint(theirs), name
            assert inspect.getdoc(mine), name


def hint(method: Any) -> Any:
    return get_type_hints(method)["return"]


def test_both_clients_have_the_same_methods_and_options() -> None:
    ours = {name for name in vars(Client) if not name.startswith("_")} - {"aclose"}
    assert {name for name in vars(SyncClient) if not name.startswith("_")} - {"close"} == ours
    only_async = {"clock", "random"}
    options = inspect.signature(Client).parameters
    assert list(inspect.signature(SyncClient).parameters) == [name for name in options if name not in only_async]
    assert ours >= OF_SERVERS


def test_the_page_shows_the_table() -> None:
    assert parity.PAGE.read_text("utf-8") == parity.page(), "run python -m scripts.parity"
