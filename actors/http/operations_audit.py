"""The audit log."""

from __future__ import annotations

from tocsin.actors.http.operations_reading import DEFAULT_LIMIT
from tocsin.actors.http.parameters import AUDITED, names
from tocsin.actors.http.request import Call
from tocsin.actors.scheduler.model.audit_records import AuditPage, DeadGroups


async def dead_groups(call: Call) -> DeadGroups:
    call.query()
    await call.admit(None)
    return await call.port.reads.dead_groups()


async def audit(call: Call) -> AuditPage:
    query = call.query(*names(AUDITED))
    await call.admit(None)
    return await call.port.reads.audit(
        cursor=query.text("cursor") or None,
        limit=query.whole_or("limit", DEFAULT_LIMIT),
        action=query.text("action"),
        who=query.text("who"),
        since=query.whole("since"),
    )
