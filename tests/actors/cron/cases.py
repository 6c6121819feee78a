"""The cases with known answers. `python -m tests.actors.cron.cases` prints what is wrong.

That command is what the tests run under other start-up zones of the host (`TZ`).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tocsin.actors.cron.rule import Rule

DATA = Path(__file__).parent / "data"
CASES: list[dict[str, Any]] = json.loads((DATA / "cron_cases.json").read_text("utf-8"))["cases"]
SYNTAX: dict[str, Any] = json.loads((DATA / "cron_syntax.json").read_text("utf-8"))


def ms(iso: str) -> int:
    """Epoch ms of an ISO 8601 instant; what is below a ms is dropped."""
    since = datetime.fromisoformat(iso) - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def iso(at_ms: int | None) -> str:
    return "none" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()[:19] + "Z"


def following(expression: str, timezone: str, start: str, count: int = 3) -> list[str]:
    rule = Rule(expression, timezone)
    found, at = [], ms(start)
    for _ in range(count):
        after = rule.next_ms(at)
        found.append(iso(after))
        if after is None:
            break
        at = after
    return found


def wrong() -> list[str]:
    return [
        f"{case['id']}: {found}, not {case['expected']}"
        for case in CASES
        if (found := following(case["expr"], case["tz"], case["start"])) != case["expected"]
    ]


if __name__ == "__main__":
    print("\n".join([f"{len(CASES)} cases", *wrong()]))
