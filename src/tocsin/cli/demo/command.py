"""`tocsin demo`: its options and its result. `stage.py` runs it, `report.py` prints the outcome."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tocsin.cli.failure import Interrupted, Refused

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(0.2, 600), default=8.0, show_default=True, help="Spread jobs over so long."
)
@click.option("--json", "as_json", envvar="TOCSIN_JSON", is_flag=True, help="What happened as JSON on stdout.")
@click.option("--ui", is_flag=True, help="Open the dashboard on it, and go on until Ctrl-C.")
def demo(seconds: float, as_json: bool, ui: bool) -> None:
    """See it work, in 10 seconds.

    A server, a receiver, a worker, 60 jobs and a schedule in one process, shown live. Needs
    nothing, leaves nothing behind, and exits 0 only if every promise it checks
    was kept. With --ui it goes on, with new jobs all the time, for its
    dashboard to be looked at.
    """
    import asyncio

    if ui:
        _stay(seconds, as_json)
        return
    from tocsin.cli.demo.report import report
    from tocsin.cli.demo.stage import perform
    from tocsin.cli.http_server import loop_factory

    with tempfile.TemporaryDirectory(prefix="tocsin-demo-") as directory:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                outcome = runner.run(perform(Path(directory), round(seconds * 1000), _console(as_json)))
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise Interrupted("stopped before the end; nothing was kept") from None
    if not report(outcome, as_json=as_json):
        raise Refused("the demo did not go as promised: see above")


def _stay(seconds: float, as_json: bool) -> None:
    import asyncio

    from tocsin.cli.demo.dashboard import stay
    from tocsin.cli.http_server import loop_factory
    from tocsin.cli.words import say

    if as_json:
        raise click.UsageError("--ui goes on until Ctrl-C and has no outcome: leave --json out")
    with tempfile.TemporaryDirectory(prefix="tocsin-demo-") as directory:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(stay(Path(directory), round(seconds * 1000)))
        except (KeyboardInterrupt, asyncio.CancelledError):
            say("tocsin: the demo has ended; nothing was kept")


def _console(as_json: bool) -> Console:
    """Return a console on stdout, or on stderr when stdout carries JSON."""
    from rich.console import Console

    return Console(file=sys.stderr if as_json else sys.stdout, highlight=False)
