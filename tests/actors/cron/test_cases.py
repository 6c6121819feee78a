"""Known answers: every case that was computed minute by minute, whatever zone the host itself is in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.actors.cron.cases import CASES, following

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case['id']}-{case['expr']}-{case['tz']}".replace(" ", "_") for case in CASES]
)
def test_case(case: dict[str, Any]) -> None:
    assert following(case["expr"], case["tz"], case["start"]) == case["expected"], case["why"]


@pytest.mark.parametrize("zone", ["Australia/Sydney", "America/New_York", "UTC"])
def test_the_zone_of_the_host_changes_nothing(zone: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.actors.cron.cases"],
        cwd=ROOT,
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert run.stdout.splitlines() == [f"{len(CASES)} cases"]


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        ("0 0 31 2 1", "UTC", "2025-02-01T00:00Z", ["2025-02-03T00:00:00Z", "2025-02-10T00:00:00Z"]),
        ("0 0 1 1-1 *", "UTC", "2025-01-01T00:00Z", ["2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"]),
        ("0 0 * * sat-sun", "UTC", "2025-03-14T12:00Z", ["2025-03-15T00:00:00Z", "2025-03-16T00:00:00Z"]),
        ("*/45 * * * *", "UTC", "2025-03-14T09:00Z", ["2025-03-14T09:45:00Z", "2025-03-14T10:00:00Z"]),
        ("0 * * * *", "UTC", "2025-10-05T02:00Z", ["2025-10-05T03:00:00Z", "2025-10-05T04:00:00Z"]),
        ("25 11 * * *", "UTC", "2020-11-25T05:20Z", ["2020-11-25T11:25:00Z", "2020-11-26T11:25:00Z"]),
        ("0 2 * * *", "US/Pacific", "2025-03-08T12:00Z", ["2025-03-09T10:00:00Z", "2025-03-10T09:00:00Z"]),
        ("30 2 * * 0", "Europe/Amsterdam", "2023-03-25T12:00Z", ["2023-03-26T01:00:00Z", "2023-04-02T00:30:00Z"]),
        ("0 0 * * 0", "America/Santiago", "2025-09-06T12:00Z", ["2025-09-07T04:00:00Z", "2025-09-14T03:00:00Z"]),
        ("30 1 * * *", "America/New_York", "2025-11-02T06:15Z", ["2025-11-03T06:30:00Z", "2025-11-04T06:30:00Z"]),
        ("30 * * * *", "Australia/Lord_Howe", "2025-04-05T13:30Z", ["2025-04-05T14:30:00Z", "2025-04-05T15:00:00Z"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T00:00Z", ["2025-10-04T15:30:00Z", "2025-10-05T15:15:00Z"]),
        ("0 */2 * * *", "America/New_York", "2025-03-09T04:30Z", ["2025-03-09T05:00:00Z", "2025-03-09T08:00:00Z"]),
        ("0 0-23 * * *", "America/New_York", "2025-11-02T04:30Z", ["2025-11-02T05:00:00Z", "2025-11-02T07:00:00Z"]),
        ("0 1,2 * * *", "Antarctica/Troll", "2025-03-29T12:00Z", ["2025-03-30T01:00:00Z", "2025-03-30T23:00:00Z"]),
        ("0 12 * * 5", "Pacific/Apia", "2011-12-29T12:00Z", ["2011-12-30T10:00:00Z", "2012-01-05T22:00:00Z"]),
    ],
)
def test_failures_that_others_had(expression: str, zone: str, start: str, expected: list[str]) -> None:
    assert following(expression, zone, start, 2) == expected
