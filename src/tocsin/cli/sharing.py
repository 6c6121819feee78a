"""Settings by which shard keys share a pool or a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from tocsin.cli.words import printable


def sharing(shared: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how shard keys share a pool or a queue, in words; most have nothing to say."""
    said: list[tuple[str, str]] = []
    weights = shared.get("weights")
    if shared.get("fair"):
        said.append(("fair", "jobs with different shard keys have turns"))
    if weights:
        said.append(("weights", printable(", ".join(f"{key} {weight}" for key, weight in weights.items()))))
    if shared.get("maxPerKey"):
        said.append(("per key", f"{shared['maxPerKey']:,} of a shard key run at once"))
    return said


def weights_of(given: Sequence[str]) -> dict[str, int] | None:
    """Read weights as they are given on the command line; None if none are."""
    if not given:
        return None
    weights: dict[str, int] = {}
    for one in given:
        key, _, weight = one.rpartition("=")
        if not key or not (weight.isascii() and weight.isdecimal()):
            raise click.UsageError(f"--weight must be as customer-7=3, not {one!r}")
        weights[key] = int(weight)
    return weights
