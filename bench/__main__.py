"""`python -m bench` measures all that matters; `run PART …` some of it; the other commands measure one subject each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from bench import compare as comparing
from bench import contenders, suite
from bench.lease import measure
from bench.loops import NAMES as LOOPS
from bench.loops import default_loop
from bench.pool import measure as measure_pool
from bench.queues import measure as measure_queues
from bench.queues_peers import measure as measure_peers
from bench.rehearsal import measure as measure_rehearsal
from bench.scale import measure as measure_scale
from bench.schedules import measure as measure_schedules
from tocsin.dispatch.transports import NAMES


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Measure tocsin on this machine. Without a command: `run`."""
    if context.invoked_subcommand is None:
        context.invoke(run)


@main.command(help=f"Measure parts, or all of them, and write the results. Parts: {', '.join(suite.NAMES)}.")
@click.argument("parts", nargs=-1)
@click.option(
    "--rounds", default=suite.ROUNDS, show_default=True, help="Repeats of each part, in turn with the others."
)
@click.option("--minutes", default=suite.MINUTES, show_default=True, help="After which no further round begins.")
@click.option("--scale", default=1.0, show_default=True, help="The share of the usual number of jobs.")
@click.option("--pending", default=1_000_000, show_default=True, help="The most pending jobs.")
@click.option("--loop", type=click.Choice(LOOPS), default=default_loop(), show_default=True)
@click.option("--folder", help="Where the stores lie: a folder on the disk to measure.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=suite.RESULTS, help="Where results go."
)
def run(
    parts: tuple[str, ...],
    rounds: int,
    minutes: float,
    scale: float,
    pending: int,
    loop: str,
    folder: str | None,
    out: Path,
) -> None:
    """Measure, and write the results."""
    written = suite.run(
        parts, rounds=rounds, minutes=minutes, scale=scale, most_pending=pending, loop=loop, folder=folder, out=out
    )
    print("\n".join(str(path) for path in written))


@main.command(help="Other schedulers and queues on the same durable job, in turn with tocsin; names to choose some.")
@click.argument("peers", nargs=-1)
@click.option("--jobs", default=3_000, show_default=True, help="Jobs of each phase.")
@click.option("--rounds", default=3, show_default=True, help="Runs of each peer, in turn.")
@click.option("--pending", default=0, show_default=True, help="Jobs of another day in the store, while others run.")
@click.option("--patience", default=60.0, show_default=True, help="Seconds for lost jobs to come back after SIGKILL.")
@click.option("--install", is_flag=True, help="First install the peers, into an environment of their own.")
@click.option("--python", help="Of an environment that has the peers.  [default: the one that --install makes]")
@click.option("--folder", help="Where the stores lie: a folder on the disk to measure.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=suite.RESULTS, help="Where results go."
)
def compare(
    peers: tuple[str, ...],
    jobs: int,
    rounds: int,
    pending: int,
    patience: float,
    install: bool,
    python: str | None,
    folder: str | None,
    out: Path,
) -> None:
    """Measure, and write the comparison."""
    if install:
        contenders.install(comparing.chosen(peers), contenders.ENVIRONMENT)
    written = comparing.run(
        peers, jobs=jobs, rounds=rounds, pending=pending, patience_s=patience, python=python, folder=folder, out=out
    )
    print("\n".join(str(path) for path in written))


@main.command()
@click.option("--jobs", default=5_000, show_default=True, help="Jobs per measurement.")
@click.option("--pending", default="0,100000", show_default=True, help="Pending jobs there are already; a run each.")
@click.option("--loop", "loops", default="asyncio", show_default=True, help="asyncio, uvloop or both, by comma.")
@click.option("--transport", type=click.Choice(NAMES), help="The built-in one if not given.")
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
@click.option("--count", default=100_000, show_default=True, help="Schedules that are not due.")
@click.option("--due", "due_count", default=10_000, show_default=True, help="Schedules due at one instant.")
@click.option("--folder", help="Where the store lies: a folder on the disk to measure.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON at the end.")
def schedules(count: int, due_count: int, folder: str | None, as_json: bool) -> None:
    """Many schedules in one scheduler: defined, started with, idle, due at once."""
    figures = measure_schedules(count, due_count, folder)
    if as_json:
        json.dump(figures, sys.stdout, indent=2)
        print()


@main.command()
@click.option("--jobs", default=3_000, show_default=True, help="Jobs per measurement.")
@click.option("--long", default=100_000, show_default=True, help="Jobs of the long queue beside nine others.")
@click.option("--loop", type=click.Choice(["asyncio", "uvloop"]), default="asyncio", show_default=True)
@click.option("--peers", is_flag=True, help="Measure other queues on the same job too, those that are installed.")
@click.option("--only-peers", is_flag=True, help="And nothing else.")
@click.option("--rounds", default=2, show_default=True, help="Runs of each peer, in turn.")
@click.option("--python", default=sys.executable, help="Of an environment that has the peers.  [default: this one]")
@click.option("--folder", help="Where the stores lie: a folder on the disk to measure.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON at the end.")
def queues(
    jobs: int,
    long: int,
    loop: str,
    peers: bool,
    only_peers: bool,
    rounds: int,
    python: str,
    folder: str | None,
    as_json: bool,
) -> None:
    """Claims, jobs worked off, latency, what waiting costs, queues side by side, chains."""
    figures = {} if only_peers else measure_queues(jobs, long, folder, loop)
    if peers or only_peers:
        figures |= measure_peers(jobs, rounds, folder, python)
    if as_json:
        json.dump(figures, sys.stdout, indent=2)
        print()


@main.command()
@click.option("--jobs", default=1_000_000, show_default=True, help="Pending jobs of the large measurement.")
@click.option("--folder", help="Where the servers' data lie: a folder on the disk to measure.")
def scale(jobs: int, folder: str | None) -> None:
    """Many rows on PostgreSQL, and a slot that moves from one server to another: the figures of docs/scale.md."""
    measure_scale(jobs, folder)


@main.command()
@click.option("--jobs", default=50_000, show_default=True, help="Jobs of the week.")
@click.option("--folder", help="Where the store lies: a folder on the disk to measure.")
def rehearsal(jobs: int, folder: str | None) -> None:
    """A week that is rehearsed by `tocsin simulate`."""
    measure_rehearsal(jobs, folder)


if __name__ == "__main__":
    main()
