"""A real server with three instances of equal ids and names, killed, restored and made anew, and one receiver."""

from __future__ import annotations

from pathlib import Path

from tests.processes.instances import run


def test_all_that_is_booked_has_run_at_a_receiver_that_remembers(tmp_path: Path) -> None:
    """`python -m tests.processes.instances` does it for twenty rounds: killed, restored, killed, made anew, ..."""
    run(rounds=4, seed=20261130, folder=tmp_path).check()
