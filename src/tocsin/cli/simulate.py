"""`tocsin simulate`: rehearse what a store would do until an instant, on a copy, in virtual time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tocsin.cli.failure import Refused, WrongSettings
from tocsin.cli.output import emit, instant, now_ms, plural, span
from tocsin.cli.rates import rate_typed
from tocsin.cli.simulate_report import print_rehearsal
from tocsin.cli.stores import store_command
from tocsin.cli.times import duration, instant_of
from tocsin.cli.words import printable, say

if TYPE_CHECKING:
    from tocsin.actors.scheduler.model.pool_settings import PoolOptions

LONGEST_MS: Final = 366 * 86_400_000
EVERY: Final = "*"


@click.command()
@click.argument("place", metavar="[STORE]", required=False)
@click.option("--until", default="+7d", show_default=True, metavar="WHEN", help="+7d from the start, or an instant.")
@click.option(
    "--from", "start", envvar="TOCSIN_SIMULATE_FROM", metavar="WHEN", help="When it begins: an instant (default: now)."
)
@click.option("--instance", envvar="TOCSIN_INSTANCE", metavar="NAME", help="Only this scheduler (default: all).")
@click.option(
    "--pool",
    "caps",
    envvar="TOCSIN_SIMULATE_POOL",
    multiple=True,
    metavar="NAME=N",
    help="With another cap for a pool.",
)
@click.option(
    "--rate",
    "rates",
    envvar="TOCSIN_SIMULATE_RATE",
    multiple=True,
    metavar="NAME=N/TIME[/BURST]",
    help="With another rate, or none.",
)
@click.option("--workers", multiple=True, metavar="[QUEUE=]N", help="So many jobs of queues are worked on at once.")
@click.option("--call-time", default="300ms", show_default=True, metavar="SPAN", help="Where there is no history.")
@click.option("--lanes", type=click.IntRange(1), default=64, show_default=True, help="As of the server.")
@click.option("--max-in-flight", type=click.IntRange(1), default=256, show_default=True, help="As of the server.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draws from the history.")
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Draw it, too.")
@store_command
def simulate(url: str, /, as_json: bool, svg: Path | None, instance: str | None, **given: Any) -> None:
    """Rehearse what a store would do, without doing it.

    Copies the schedulers of STORE (a file, or a URL) into memory, also while
    a server uses it, and runs them there until --until: the code of the
    server, in virtual time. Nothing is sent. How long calls take and how many
    fail is drawn from the history of the last week.

    \b
    tocsin simulate store.db --until +7d --pool stripe=10 --svg week.svg

    Exit code 1: a scheduler could not be run to the end.
    """
    import asyncio

    from tocsin.actors.rehearsal.copying import copy_store
    from tocsin.actors.rehearsal.picture import picture
    from tocsin.actors.rehearsal.rehearse import Plan, rehearse
    from tocsin.errors import InvalidInputError, NotFoundError
    from tocsin.storage.urls import open_look

    start = now_ms() if given["start"] is None else instant_of(given["start"], "--from")
    until = _until(given["until"], start)
    plan = Plan(
        start, until, given["seed"], _pools(given["caps"], given["rates"]), _workers(given["workers"]),
        given["lanes"], given["max_in_flight"],
    )  # fmt: skip
    look = open_look(url)
    try:
        copy = asyncio.run(copy_store(look, instance, duration(given["call_time"], "--call-time")))
        schedulers, jobs = plural(len(copy.instances), "scheduler"), plural(copy.jobs, "job")
        if not as_json:
            say(f"copied {schedulers} with {jobs}; rehearsing {span(until - start)} from {instant(start)}")
        with _silence():
            found = rehearse(copy, plan)
    except NotFoundError as error:
        raise Refused(str(error)) from None
    except InvalidInputError as error:
        raise WrongSettings(str(error)) from None
    if svg is not None:
        _write(svg, picture(found, f"{look.place}, {span(until - start)} from {instant(start)}"))
    if as_json:
        emit(found.to_dict())
    else:
        print_rehearsal(found)
    if found.failed:
        name, why = next(iter(found.failed.items()))
        raise Refused(f"{plural(len(found.failed), 'scheduler')} could not be run, such as {name!r}: {why}")


@contextmanager
def _silence() -> Iterator[None]:
    """Log nothing of what a rehearsal does: its deaths are no news."""
    log = logging.getLogger("tocsin")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _until(text: str, start: int) -> int:
    ahead = text.removeprefix("+")
    span_given = text.startswith("+") or ahead[-1:] in ("s", "m", "h", "d")
    until = start + duration(ahead, "--until") if span_given else instant_of(text, "--until")
    if not start < until <= start + LONGEST_MS:
        raise click.UsageError(f"--until must be after the start, and within a year of it, not {text!r}")
    return until


def _pools(caps: tuple[str, ...], rates: tuple[str, ...]) -> dict[str, PoolOptions]:
    """Return what is to be set of which pool, as an operator would set it."""
    from tocsin.actors.scheduler.model.pool_settings import pool_settings
    from tocsin.dispatch.rate import Rate
    from tocsin.errors import InvalidInputError

    pools: dict[str, PoolOptions] = {}
    try:
        for one in caps:
            name, cap = _named(one, "--pool", "stripe=10")
            pools.setdefault(name, {})["max_concurrency"] = _number(cap, one, "--pool", "stripe=10")
        for one in rates:
            name, rate = _named(one, "--rate", "stripe=100/1m")
            if rate == "none":
                pools.setdefault(name, {})["rate"] = "none"
                continue
            pools.setdefault(name, {})["rate"] = Rate(**rate_typed(rate, f"--rate of {name}"))
        for settings in pools.values():
            pool_settings(settings)
    except InvalidInputError as error:
        raise click.UsageError(str(error)) from None
    return pools


def _workers(given: tuple[str, ...]) -> dict[str, int]:
    workers: dict[str, int] = {}
    for one in given:
        name, equals, count = one.rpartition("=")
        workers[name if equals else EVERY] = _number(count, one, "--workers", "8 or emails=8")
    return workers


def _named(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise click.UsageError(f"{option} must be as {example}, not {text!r}")
    return name, value


def _number(text: str, whole: str, option: str, example: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise click.UsageError(f"{option} must be as {example}, not {whole!r}")
    return int(text)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise WrongSettings(f"{printable(file)} cannot be written: {error.strerror}") from None
