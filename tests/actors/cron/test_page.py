"""What docs/cron.md shows is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.actors.cron.cases import following
from tocsin.actors.cron.expression import Expression
from tocsin.errors import InvalidCronError

PAGE = (Path(__file__).parents[3] / "docs" / "cron.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]
EXAMPLES = [row for row in ROWS if len(row) >= 4]
REFUSED = [row for row in ROWS if len(row) == 3]
CODE = re.compile(r"`([^`]+)`")


def test_the_page_has_both_tables() -> None:
    assert len(EXAMPLES) > 20
    assert len(REFUSED) > 10


@pytest.mark.parametrize("row", EXAMPLES, ids=[f"{row[0]}-{row[1]}" for row in EXAMPLES])
def test_example(row: list[str]) -> None:
    [expression] = CODE.findall(row[0])
    expected = row[3].split(", ")

    assert following(expression, row[1], row[2], len(expected)) == expected


@pytest.mark.parametrize("row", REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_refused_and_what_is_written_instead(row: list[str]) -> None:
    for expression in CODE.findall(row[0]):
        with pytest.raises(InvalidCronError):
            Expression(expression)
    for instead in CODE.findall(row[2]):
        if " " in instead and ":" not in instead:
            Expression(instead)


def test_the_schedules_in_code_are_declared() -> None:
    [block] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)

    assert [(declared.name, declared.cron) for declared in names["cron"]] == [
        ("sweep", "17 * * * *"),
        ("report", "30 6 * * *"),
        ("invoice", "0 8 * * 1"),
        ("close", "5 0 1 * *"),
        ("poll", "*/15 * * * *"),
        ("last-friday", "0 16 * * 5L"),
    ]
