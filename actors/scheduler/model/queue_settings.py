"""Settings of a queue, checked at the call; and what they make of its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec

from tocsin.actors.scheduler.model.flow_rows import QueueRow
from tocsin.actors.scheduler.model.pool_settings import OF_SHARING, checked, said_of


class QueueOptions(TypedDict, total=False):
    """Settings of a queue; what is left out, or None, stays as it is."""

    fair: bool | None
    weights: Mapping[str, int] | None
    max_per_key: int | None


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Checked settings of a queue. None: it stays as it is."""

    fair: bool | None = None
    weights: dict[str, int] | None = None
    """Instead of all that there were."""
    max_per_key: int | None = None
    """0: no cap."""

    def said(self) -> dict[str, str | int | bool]:
        """Return what was set, for the audit log."""
        return said_of(self)

    def row_after(self, old: QueueRow | None) -> QueueRow | None:
        """Return the queue's row once this is set; None if it has nothing of its own."""
        before = QueueRow() if old is None else old
        row = QueueRow(
            fair=before.fair if self.fair is None else self.fair,
            weights=before.weights if self.weights is None else self.weights or None,
            per_key=before.per_key if self.max_per_key is None else self.max_per_key or None,
        )
        return None if row == QueueRow() else row


def queue_settings(given: Mapping[str, Any]) -> QueueSettings:
    """Check settings as callers give them, by their names in Python."""
    return QueueSettings(**checked("queue", given, OF_SHARING))
