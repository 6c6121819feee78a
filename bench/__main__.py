"""The one command: `python -m bench lease`, `pool` or `schedules`; `--help` tells their options."""

from __future__ import annotations

import json
import sys

import click

from bench.lease import measure
from bench.pool import measure as measure_pool
from bench.schedules import measure as measure_schedules


@click.group()
def main() -> None:
    """Measure tocsin on this machine."""


@main.command()
@click.option("--jobs", default=5_000, show_default=True, help="Jobs per measurement.")
@click.option("--pending", default="0,100000", show_default=True, help="Pending jobs there are already; a run each.")
@click.option("--loop", "loops", default="asyncio", show_default=True, help="asyncio, uvloop or both, by comma.")
@click.option("--transport", type=click.Choice(["aiohttp", "httpx"]), help="The best installed if not given.")
@click.option("--folder", help="Where the store lies: a folder on the disk to measure.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON at the end.")
def lease(jobs: int, pending: str, loops: str, transport: str | None, folder: str | None, as_json: bool) -> None:
    """Schedule rate, fire rate and lateness."""
    figures = {
        f"{loop}/{count}": measure(jobs, int(count), folder, transport, loop)
        for loop in loops.split(",")
        for count in pending.split(",")
    }
    if as_json:
        json.dump(figures, sys.stdout, indent=2)
        print()


@main.command()
@click.option("--waiters", default=100_000, show_default=True, help="Waiters, and pools, of the largest measurements.")
@click.option("--folder", help="Where the stores lie: a folder on the disk to measure.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON at the end.")
def pool(waiters: int, folder: str | None, as_json: bool) -> None:
    """Hand-over of slots, latency beside a full pool, rows written per job."""
    figures = measure_pool(waiters, folder)
    if as_json:
        json.dump(figures, sys.stdout, indent=2)
        print()


@main.command()
@click.option("--total", default=100_000, show_default=True, help="Schedules in one scheduler.")
@click.option("--due", default=10_000, show_default=True, help="Of them due in one minute.")
@click.option("--folder", help="Where the stores lie: a folder on the disk to measure.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON at the end.")
def schedules(total: int, due: int, folder: str | None, as_json: bool) -> None:
    """Many schedules: registering, starting, idling, and a minute in which many are due."""
    figures = measure_schedules(total, due, folder)
    if as_json:
        json.dump(figures, sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
