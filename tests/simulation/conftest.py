"""Short turns for every simulated host."""

from __future__ import annotations

import pytest

from tests.simulation.acts import UNDO_MS
from tocsin.actors.scheduler.actor import pull
from tocsin.actors.scheduler.client import bulk
from tocsin.actors.scheduler.model import suspects
from tocsin.actors.scheduler.schedules import allowance
from tocsin.actors.scheduler.transitions import acts, undo


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backlogs take many turns, so that everything comes in between."""
    monkeypatch.setattr(allowance, "STEPS", 60)
    monkeypatch.setattr(allowance, "LEAST_STEPS", 5)
    monkeypatch.setattr(pull, "JOBS_PER_TURN", 2)
    monkeypatch.setattr(pull, "ROUNDS", 2)
    monkeypatch.setattr(undo, "PAGE", 3)
    monkeypatch.setattr(acts, "PAGE", 3)
    monkeypatch.setattr(bulk, "PAGE", 3)
    monkeypatch.setattr(acts, "UNDO_MS", UNDO_MS)
    monkeypatch.setattr(undo, "UNDO_MS", UNDO_MS)
    monkeypatch.setattr(suspects, "LOSSES_TOGETHER", 1)  # few jobs lose more hosts and workers than two or three
