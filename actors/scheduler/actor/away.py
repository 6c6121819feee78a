"""Events that an instance refuses which is being removed, comes out of a file, or leaves for another place."""

from __future__ import annotations

from typing import Final, get_args

from tocsin.actors.scheduler.model.moving import moved
from tocsin.actors.scheduler.model.rows import InstanceRow
from tocsin.actors.scheduler.schedules.events import ScheduleChange
from tocsin.actors.scheduler.transitions import events
from tocsin.errors import ConflictError, InstanceMovingError

NEW_WORK: Final = (
    events.Submit,
    events.SubmitOnce,
    events.BeginImport,
    events.StartUndo,
    events.UndoPage,
    *get_args(ScheduleChange),
)
"""Events that are refused while the instance is being removed or about to leave."""
KEPT: Final = (events.CancelMany, events.DiscardMany)
"""Events that keep what they remove: not of an instance that is being removed."""
OF_THE_HOST: Final = (events.ClaimMore, events.SettleFinished, events.CountPaths, events.GiveBack)
"""Events that nobody outside asks for, and nobody can be refused."""


def is_sealed(row: InstanceRow) -> bool:
    """Return whether the instance has left: nothing of it changes any more."""
    return row.moving is not None and row.moving[2]


def check(row: InstanceRow, event: object, name: str) -> None:
    """Raise ConflictError for an event that is refused."""
    if isinstance(event, OF_THE_HOST):
        return
    if row.importing:
        if not isinstance(event, get_args(events.Moving)):
            raise ConflictError(f"instance {name!r} is being imported, and runs when that is done: try again then")
        if isinstance(event, events.Seal | events.Unseal):
            raise ConflictError(f"instance {name!r} is being imported: it can leave when that is done")
    elif row.erasing and isinstance(event, (*NEW_WORK, *KEPT, events.Seal)):
        raise ConflictError(f"instance {name!r} is being removed: try again when that is done")
    elif row.moving is not None and not isinstance(event, events.Seal | events.Unseal):
        if is_sealed(row):
            raise moved(name, row.moving[1])
        if isinstance(event, NEW_WORK):
            to = row.moving[1]
            said = f"instance {name!r} is moving to {to}: use it there once it has arrived"
            raise InstanceMovingError(said, movedTo=to)
