"""Drains killed with SIGKILL while rows are written; `python -m tests.processes.outbox_kills` does more of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.processes.outbox_kills import kill_drains


def test_one_job_per_committed_row_and_none_per_rolled_back_one(tmp_path: Path) -> None:
    came, committed = kill_drains(str(tmp_path / "app.db"), tmp_path, kills=2, rows=100)

    assert len(committed) == 100
    assert came == Counter(committed)
