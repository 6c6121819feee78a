"""Changes of what a server's scheduler holds. Most are sent once: a second answer would be another one."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec

from tocsin.actors.client import answers
from tocsin.actors.client.bodies import group_body
from tocsin.actors.client.checks import Delayed
from tocsin.actors.client.server import ALWAYS, UNSENT, Server, part
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.audit_records import Undone
from tocsin.actors.scheduler.model.freed import Freed
from tocsin.actors.scheduler.model.group_records import GroupRecord
from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.model.pool_settings import PoolSettings
from tocsin.actors.scheduler.model.queue_settings import QueueSettings
from tocsin.actors.scheduler.model.validation import plain_name, schedule_id
from tocsin.dispatch.failure import Failure
from tocsin.dispatch.pulled import Settlement
from tocsin.dispatch.receiver.outcomes import failure_in_json


class ServerChanges:
    """Changes what one scheduler of a server holds."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name

    # ---- Jobs ------------------------------------------------------------------------------------

    async def cancel(self, id: str) -> records.Cancelled:
        """Remove a pending, waiting or running job."""
        return await self._server.ask("POST", self._name, "cancel", records.Cancelled, {"id": id}, again=UNSENT)

    async def cancel_all(
        self, *, pool: str | None, label: str | None, path: str | None, all: bool, dry_run: bool
    ) -> records.Matched:
        """Cancel every job there is now that fits all filters."""
        said = {"pool": pool, "label": label, "functionPath": path, "all": all, "dryRun": dry_run}
        return await self._server.ask("POST", self._name, "cancel-all", records.Matched, said, again=dry_run)

    async def reschedule(self, id: str, due: int) -> records.Rescheduled:
        """Move a pending or waiting job to an instant."""
        said: dict[str, object] = {"id": id}
        if isinstance(due, Delayed):
            said["delayMs"] = due.delay_ms
        else:
            said["scheduledFor"] = due
        return await self._server.ask("POST", self._name, "reschedule", records.Rescheduled, said, again=UNSENT)

    def complete(
        self,
        id: str,
        lease: str,
        *,
        ok: bool,
        error: Failure | str | None,
        retryable: bool,
        delay_ms: int | None,
        charge: bool,
        result: bytes | None,
    ) -> Coroutine[Any, Any, Settlement]:
        """Settle an attempt; the same lease again is answered as at first for ten minutes."""
        said: dict[str, object] = {"id": id, "lease": lease, "ok": ok}
        if error is not None:
            said["error"] = failure_in_json(error)
        if not ok:
            said |= {"retryable": retryable, "charge": charge}
        if delay_ms is not None:
            said["delayMs"] = delay_ms
        if result is not None:
            said["result"] = msgspec.Raw(result)
        once = partial(self._server.post, self._name, "complete", Settlement, said)
        return once(rescue=partial(self._server.again, once=once, again=ALWAYS))

    async def extend(self, id: str, lease: str, lease_ms: int) -> int:
        """Hold the attempt until `lease_ms` from now; that instant on the server's clock."""
        said = {"id": id, "lease": lease, "leaseMs": lease_ms}
        return (await self._server.post(self._name, "extend", answers.Held, said)).lease_until

    # ---- Dead letters ----------------------------------------------------------------------------

    async def dead_retry(self, id: str) -> records.DeadRetried:
        """Make a dead job due now, with a fresh budget."""
        return await self._server.ask("POST", self._name, "dead/retry", records.DeadRetried, {"id": id}, again=UNSENT)

    async def dead_cancel(self, id: str) -> bool:
        """Remove a dead job for good."""
        found = await self._server.ask("POST", self._name, "dead/cancel", answers.Removed, {"id": id}, again=UNSENT)
        return found.removed

    async def dead_retry_all(
        self,
        *,
        pool: str | None,
        reason: str | None,
        path: str | None,
        since: int | None,
        ids: Sequence[str] | None,
        all: bool,
        rate_per_second: int,
        dry_run: bool,
    ) -> records.Redrive:
        """Retry the dead letters parked before this call that fit all filters."""
        said = {
            "pool": pool, "reason": reason, "functionPath": path, "since": since, "ids": ids, "all": all,
            "ratePerSecond": rate_per_second, "dryRun": dry_run,
        }  # fmt: skip
        return await self._server.ask("POST", self._name, "dead/retry-all", records.Redrive, said, again=dry_run)

    async def dead_cancel_all(
        self,
        *,
        pool: str | None,
        reason: str | None,
        path: str | None,
        since: int | None,
        ids: Sequence[str] | None,
        all: bool,
        dry_run: bool,
    ) -> records.Matched:
        """Cancel the dead letters parked before this call that fit all filters."""
        said = {
            "pool": pool, "reason": reason, "functionPath": path, "since": since, "ids": ids, "all": all,
            "dryRun": dry_run,
        }  # fmt: skip
        return await self._server.ask("POST", self._name, "dead/cancel-all", records.Matched, said, again=dry_run)

    async def undo(self, action_id: str) -> Undone:
        """Undo a bulk action of the last ten minutes."""
        return await self._server.ask("POST", self._name, "undo", Undone, {"actionId": action_id}, again=UNSENT)

    async def redrive_stop(self, redrive_id: str) -> bool:
        """Stop a bulk retry; what it has retried stays retried."""
        route = f"dead/redrives/{part(schedule_id(redrive_id))}"
        return (await self._server.ask("DELETE", self._name, route, answers.Stopped, again=UNSENT)).stopped

    # ---- Pools and the instance ------------------------------------------------------------------

    async def set_pool(self, name: str, settings: PoolSettings) -> records.Pool:
        """Set what is given of a pool."""
        said = {"name": name, **msgspec.to_builtins(settings)}
        return await self._server.ask("PUT", self._name, "pool", records.Pool, said, again=UNSENT)

    async def set_queue(self, name: str, settings: QueueSettings) -> records.Queue:
        """Set what is given of a queue."""
        said = msgspec.to_builtins(settings)
        route = f"queues/{part(plain_name(name, 'queue'))}"
        return await self._server.ask("PUT", self._name, route, records.Queue, said, again=UNSENT)

    async def delete_pool(self, name: str) -> bool:
        """Forget what was set of a pool. ConflictError while a job names it."""
        found = await self._server.ask(
            "DELETE", self._name, "pool", answers.Deleted, query={"name": name}, again=UNSENT
        )
        return found.deleted

    async def open_group(self, group: NewGroup) -> GroupRecord:
        """Make a group. The same again changes nothing; another of its name is a ConflictError."""
        return await self._server.ask("POST", self._name, "groups", GroupRecord, group_body(group), again=ALWAYS)

    async def seal_group(self, name: str) -> GroupRecord:
        """Let no more jobs join it. NotFoundError."""
        return await self._server.ask("POST", self._name, f"groups/{part(name)}/seal", GroupRecord, {}, again=ALWAYS)

    async def cancel_group(self, name: str) -> GroupRecord:
        """Begin to cancel its members. NotFoundError; ConflictError if it is complete."""
        route = f"groups/{part(name)}/cancel"
        return await self._server.ask("POST", self._name, route, GroupRecord, {}, again=UNSENT)

    async def free_slot(self, id: str) -> Freed:
        """End the lease of an accepted or unknown attempt now. ConflictError while an attempt runs."""
        return await self._server.ask("POST", self._name, "pool/free", Freed, {"id": id}, again=UNSENT)

    async def set_instance(self, *, paused: bool | None, timeout_ms: int | None) -> records.InstanceState:
        """Stop or start all firing, or set the deadline of callbacks whose jobs have none (0: the server's again)."""
        said = {"paused": paused, "timeoutMs": timeout_ms}
        return await self._server.ask("PUT", self._name, "instance", records.InstanceState, said, again=ALWAYS)

    async def remove(self) -> records.Removed:
        """Remove everything of this instance."""
        query = {"confirm": self._name}
        return await self._server.ask("DELETE", self._name, "", records.Removed, query=query, again=UNSENT)

    # ---- The test clock --------------------------------------------------------------------------

    async def set_clock(self, at: int) -> records.ClockState:
        """Make the instance with a test clock; the same again is not refused."""
        return await self._server.ask("PUT", self._name, "clock", records.ClockState, {"at": at}, again=UNSENT)

    async def advance_clock(self, *, to: int | None, by_ms: int | None) -> records.ClockState:
        """Begin to advance the test clock."""
        said = {"to": to} if by_ms is None else {"byMs": by_ms}
        return await self._server.ask("POST", self._name, "clock/advance", records.ClockState, said, again=UNSENT)

    async def freeze_clock(self) -> records.ClockState:
        """End an advance where the clock stands."""
        return await self._server.ask("POST", self._name, "clock/freeze", records.ClockState, {}, again=ALWAYS)
