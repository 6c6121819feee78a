"""The turn of an operator who says how jobs are taken from a queue."""

from __future__ import annotations

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.flow_rows import queue_key
from tocsin.actors.scheduler.model.queue_settings import QueueSettings
from tocsin.actors.scheduler.model.rows import encode
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import audit


def set_queue(turn: Turn, name: str, settings: QueueSettings, by: AskedBy | None = None) -> bool:
    """Set what is given of a queue; return whether that changes anything. Jobs that wait are moved by the turns that
    follow (`line_up`)."""
    state = turn.state
    rotas = state.lines.rotas
    old = None if rotas is None else rotas.queues.get(name)
    row = settings.row_after(old)
    if row == old:
        return False
    state.use_flow()
    if row is None:
        state.storage.delete(queue_key(name))
    else:
        state.storage.put(queue_key(name), encode(row))
    state.lines.set_queue(name, row)
    audit.note(turn, by, "set_queue", name, settings.said())
    return True
