"""Instants and durations on the command line: what cannot be is wrong usage, of the option that has it."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run

LATE = "9999-12-31T23:59:59-05:00"
INSTANTS = (
    LATE, "0001-01-01T00:00:00+09:00", "9" * 5_000, "1800000000", "2027-01-01T00:00:00", "soon", "2027-13-01T00:00:00Z",
    "2027-01-01T00:00:00+25:00", "-5", "9999999999999999",
)  # fmt: skip
DURATIONS = ("999999999999d", "9" * 400 + "s", "-5s", "5", "1e3s", "")


@pytest.mark.parametrize("text", INSTANTS)
@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--at", ("schedule", "w:r")),
        ("--expires-at", ("schedule", "w:r")),
        ("--at", ("reschedule", "x")),
        ("--at", ("schedules", "put", "x", "w:r")),
        ("--since", ("dead", "ls")),
        ("--since", ("dead", "retry-all")),
        ("--from", ("next", "* * * * *")),
    ],
)
def test_an_instant_that_cannot_be_is_wrong_usage(run: Run, option: str, command: tuple[str, ...], text: str) -> None:
    result = run(*command, f"{option}={text}")

    assert result.exit_code == 2, result.output
    assert option in result.stderr and "Traceback" not in result.output and len(result.stderr) < 1_000


@pytest.mark.parametrize("text", DURATIONS)
@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--in", ("schedule", "w:r")),
        ("--timeout", ("schedule", "w:r")),
        ("--keep-result", ("schedule", "w:r")),
        ("--in", ("reschedule", "x")),
        ("--every", ("schedules", "put", "x", "w:r")),
        ("--grace", ("schedules", "put", "x", "w:r", "--cron", "@daily")),
        ("--jitter", ("schedules", "put", "x", "w:r", "--cron", "@daily")),
    ],
)
def test_a_duration_that_cannot_be_is_wrong_usage(run: Run, option: str, command: tuple[str, ...], text: str) -> None:
    result = run(*command, f"{option}={text}")

    assert result.exit_code == 2, result.output
    assert option in result.stderr and "Traceback" not in result.output and len(result.stderr) < 1_000
