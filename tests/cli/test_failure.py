"""The words of failures."""

from __future__ import annotations

import pytest

from tocsin.cli.failure import store_unusable


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("no store at postgresql://db:5432/jobs", "the store cannot be used: no store at postgresql://db:5432/jobs"),
        ("it is full", "the store postgresql://app@db/jobs cannot be used: it is full"),
    ],
)
def test_a_store_that_cannot_be_used_is_named_once(error: str, said: str) -> None:
    assert store_unusable("postgresql://app@db/jobs", Exception(error)).message == said
