"""`tocsin worker`: its options and what it loads. `worker_process.py` runs it."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.failure import WrongSettings, settings_checked
from tocsin.cli.times import duration

if TYPE_CHECKING:
    from tocsin.cli.worker_process import Make
    from tocsin.dispatch.worker.handlers import Handlers
    from tocsin.dispatch.worker.worker import Worker

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")
FORM: Final = "it must be module:attribute, like app:handlers"
FROM_FACTORY: Final = ("queues", "exclude", "concurrency", "lease")


@click.command()
@click.argument("app", metavar="MODULE:ATTRIBUTE")
@click.option("--queues", metavar="NAMES", help="By comma (default: all).")
@click.option("--exclude", metavar="NAMES", help="By comma: all queues but these.")
@click.option("--concurrency", type=click.IntRange(1, 1_000), help="Jobs at once (default: 8).")
@click.option("--lease", metavar="SPAN", help="How long a silent worker keeps its jobs (default: 60s).")
@click.option("--drain", metavar="SPAN", help="For jobs to end in at a stop (default: the worker's own, 25s).")
@click.option("--burst", is_flag=True, help="End when nothing of the queues is due and all that ran has ended.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="On stderr.")
@click.option(
    "--log-format", envvar="TOCSIN_LOG_FORMAT", type=click.Choice(FORMATS), default="text", show_default=True,
    help="Of the log: for people, or for programs.",
)  # fmt: skip
@client_command
def worker(
    connection: Connection, /, app: str, drain: str | None, burst: bool, log_level: str, log_format: str, **options: Any
) -> None:
    """Run jobs of queues until it is told to stop (SIGINT, SIGTERM).

    ATTRIBUTE is a tocsin.Handlers, a mapping from function paths to
    functions, or a function that makes a tocsin.Worker of the scheduler that
    it is given. The token needs the scope work.

    A stop claims nothing more and lets jobs end, for as long as --drain says;
    what is left then, or at a second signal, goes back to its queue. With
    --json the worker's state is on stdout at each change.

    With --burst it works off what is due, and jobs that become due meanwhile,
    and ends with exit code 0, also if handlers failed; 3 if the server cannot
    be reached.
    """
    from tocsin.cli.log_lines import configure
    from tocsin.cli.worker_process import run

    configure(log_level, log_format)
    given = {name: value for name, value in options.items() if value is not None}
    drain_s = None if drain is None else duration("0s" if drain.strip() == "0" else drain, "--drain") / 1000
    with settings_checked():
        run(connection, made_of(_found(app), app, given), drain_s, burst=burst)


def made_of(found: object, named: str, options: Mapping[str, Any]) -> Make:
    """Return how to make the worker from what was loaded; WrongSettings if it cannot be made."""
    from tocsin.dispatch.words import kind_of
    from tocsin.dispatch.worker.handlers import Handlers
    from tocsin.dispatch.worker.worker import Worker

    if isinstance(found, (Handlers, Mapping)):
        handlers: Handlers | Mapping[str, Any] = found
        keywords = _keywords(options)
        return lambda jobs, listener: Worker(jobs, handlers, on_heartbeat=listener, **keywords)
    if not callable(found):
        raise WrongSettings(f"{named} is {kind_of(found)}, and no Handlers: {FORM}")
    if clash := [name for name in FROM_FACTORY if name in options]:
        raise click.UsageError(f"{named} makes the worker itself: --{clash[0]} is said there")

    def make(jobs: Any, listener: Any) -> Worker:
        made = found(jobs)
        if not isinstance(made, Worker):
            raise WrongSettings(f"{named} gave {kind_of(made)}, not a tocsin.Worker")
        if listener is not None:
            made.listen(listener)
        return made

    return make


def _keywords(options: Mapping[str, Any]) -> dict[str, Any]:
    keywords: dict[str, Any] = {}
    for name in ("queues", "exclude"):
        if name in options:
            names = [one.strip() for one in str(options[name]).split(",") if one.strip()]
            keywords[name] = "*" if names == ["*"] else names
    if "concurrency" in options:
        keywords["concurrency"] = options["concurrency"]
    if "lease" in options:
        keywords["lease_ms"] = duration(options["lease"], "--lease")
    return keywords


def _found(named: str) -> object:
    """Load what `module:attribute` names; modules are found as by `python -m`, from the working directory."""
    module, _, attributes = named.partition(":")
    if not module or not attributes:
        raise click.UsageError(f"{named!r}: {FORM}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: object = importlib.import_module(module)
    except Exception as error:  # a user's module may fail in any way; where it did is worth more than that it did
        if not (isinstance(error, ModuleNotFoundError) and error.name == module):
            logging.getLogger("tocsin.worker").error("%s cannot be imported", module, exc_info=error)
        raise WrongSettings(f"{module} cannot be imported: {type(error).__name__}: {error}") from None
    for name in attributes.split("."):
        if not hasattr(found, name):
            raise WrongSettings(f"{module} has no {attributes!r}: {FORM}")
        found = getattr(found, name)
    return found
