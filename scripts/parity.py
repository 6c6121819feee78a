"""The table of operations: each method of a handle, and where else it is. `python -m scripts.parity` writes its page.

`tests/test_parity.py` walks it: no method, route or command may be missing on any side.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tocsin import Client, Scheduler, Schedules
from tocsin.actors.http.openapi import TRANSFERS
from tocsin.actors.http.operations import OPERATIONS
from tocsin.actors.scheduler.client.clock import Clock
from tocsin.actors.scheduler.client.groups import Groups

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "parity.md"
BEGIN: Final = "| `Scheduler`"


@dataclass(frozen=True)
class Row:
    """One operation: the method of a handle (or of a client, for the whole server), the names of its routes in
    `OPERATIONS` (or as they are in OpenAPI), and its commands."""

    method: str
    routes: tuple[str, ...]
    commands: tuple[str, ...]


def row(method: str, routes: str, commands: str) -> Row:
    return Row(method, tuple(routes.split()), tuple(commands.split(", ")))


ROWS: Final = (
    row("run_at", "schedule", "schedule"),
    row("run_after", "schedule", "schedule"),
    row("run_debounced", "schedule", "schedule"),
    row("task", "schedule", "schedule"),
    row("submit_many", "submit_many", "submit"),
    row("deferred", "submit_many", "submit"),
    row("get", "get", "get"),
    row("list", "list", "ls"),
    row("list_all", "list", "ls"),
    row("activity", "activity", "activity"),
    row("why", "why", "why"),
    row("history", "history", "history"),
    row("changes", "changes ws_token", "changes"),
    row("result", "result", "result"),
    row("cancel", "cancel", "cancel"),
    row("cancel_all", "cancel_all", "cancel-all"),
    row("reschedule", "reschedule", "reschedule"),
    row("dead", "dead", "dead ls, dead show"),
    row("dead_retry", "dead_retry", "dead retry"),
    row("dead_cancel", "dead_cancel", "dead cancel"),
    row("dead_retry_all", "dead_retry_all", "dead retry-all"),
    row("dead_cancel_all", "dead_cancel_all", "dead cancel-all"),
    row("dead_groups", "dead_groups", "dead groups"),
    row("redrive", "redrive", "dead redrive"),
    row("redrive_stop", "redrive_stop", "dead redrive"),
    row("claim", "claim", "claim, worker"),
    row("complete", "complete", "complete, worker"),
    row("settle", "complete", "complete, worker"),
    row("extend", "extend", "extend, worker"),
    row("announce", "announce", "worker"),
    row("workers", "workers", "workers"),
    row("queues", "queues", "queues ls"),
    row("set_queue", "set_queue", "queues set"),
    row("pending", "pending", "pending"),
    row("undo", "undo", "undo"),
    row("audit", "audit", "audit"),
    row("status", "status", "status, top"),
    row("pools", "pool set_pool delete_pool", "pools ls"),
    row("pool", "pool", "pools show"),
    row("set_pool", "set_pool", "pools set"),
    row("delete_pool", "delete_pool", "pools rm"),
    row("free_slot", "free_slot", "pools free"),
    row("pause", "pause", "instances pause, instances resume"),
    row("set_instance", "pause", "instances set"),
    row("remove", "remove", "instances rm"),
    row("schedules.put", "schedules_put", "schedules put"),
    row("schedules.register", "schedules_register", "schedules register, import crontab"),
    row("schedules.get", "schedules_get", "schedules show"),
    row("schedules.list", "schedules_list", "schedules ls"),
    row("schedules.pause", "schedules_pause", "schedules pause"),
    row("schedules.resume", "schedules_resume", "schedules resume"),
    row("schedules.trigger", "schedules_trigger", "schedules trigger"),
    row("schedules.backfill", "schedules_backfill", "schedules backfill"),
    row("schedules.backfills", "schedules_backfills", "schedules backfills"),
    row("schedules.backfill_stop", "schedules_backfill_stop", "schedules backfills"),
    row("schedules.delete", "schedules_delete", "schedules rm"),
    row("schedules.occurrences", "schedules_occurrences", "schedules occurrences"),
    row("schedules.preview", "schedules_preview", "next"),
    row("groups.open", "groups_open", "groups open"),
    row("groups.seal", "groups_seal", "groups seal"),
    row("groups.cancel", "groups_cancel", "groups cancel"),
    row("groups.get", "groups_get", "groups show"),
    row("groups.list", "groups_list", "groups ls"),
    row("groups.members", "groups_members", "groups members"),
    row("clock.create", "set_clock", "clock new"),
    row("clock.get", "clock", "clock show"),
    row("clock.advance", "advance_clock clock", "clock advance"),
    row("clock.start", "advance_clock", "clock advance"),
    row("clock.wait", "clock", "clock advance"),
    row("clock.freeze", "freeze_clock", "clock freeze"),
    row("client.instances", "instances", "instances ls"),
    row("client.export_instance", "export", "export"),
    row("client.import_instance", "import", "import instance"),
    row("client.transfer_state", "transfer_state", "move"),
    row("client.seal", "seal", "move"),
    row("client.unseal", "unseal", "move"),
    row("client.health", "ready health", "health"),
    row("client.catalog", "catalog", "catalog"),
)
ROUTES: Final = {one.name: f"{one.method} {one.path or '/i/{instance}'}" for one in OPERATIONS} | {
    "instances": "GET /instances",
    **{about.name: f"{method} {path}" for method, path, about in TRANSFERS},
    "ready": "GET /readyz",
    "ws_token": "POST /ws-token",
    "health": "GET /healthz",
}
"""As they are shown, by name."""


def methods(kind: type, before: str = "") -> set[str]:
    """Return the public operations of a class."""
    found = {name for name, one in inspect.getmembers(kind) if not name.startswith("_") and callable(one)}
    found |= {name for name, one in vars(kind).items() if isinstance(one, property) and name == "task"}
    return {before + name for name in found}


def of_handles() -> set[str]:
    """Return all there are, as rows name them; of a client those that are no plumbing."""
    plumbing = {"scheduler", "aclose", "openapi"}
    of_client = {f"client.{name}" for name in methods(Client) - plumbing}
    return (
        methods(Scheduler)
        | methods(Schedules, "schedules.")
        | methods(Clock, "clock.")
        | methods(Groups, "groups.")
        | of_client
    )


def table() -> str:
    """Return the rows as they stand in the page."""
    lines = [
        "| `Scheduler`, `Client` | `SyncClient` | HTTP, OpenAPI | `tocsin …` |",
        "|---|---|---|---|",
    ]
    for one in ROWS:
        blocking = f"`{one.method}`"
        routes = ", ".join(f"`{ROUTES[name]}`" for name in one.routes)
        commands = ", ".join(f"`{command}`" for command in one.commands)
        lines.append(f"| `{one.method}` | {blocking} | {routes} | {commands} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the page with this table."""
    text = PAGE.read_text("utf-8")
    return text[: text.index(BEGIN)] + table()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
