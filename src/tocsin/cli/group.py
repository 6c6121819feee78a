"""`main`, the command group, and what all commands share.
Exit codes are part of the contract and listed in `failure.py` and in `tocsin --help`."""

from __future__ import annotations

from typing import Any

import click

from tocsin.cli.activity import activity
from tocsin.cli.audit import audit
from tocsin.cli.backup import backup
from tocsin.cli.catalog import catalog
from tocsin.cli.changes import cancel_all, complete, extend, reschedule
from tocsin.cli.check import check
from tocsin.cli.clock import clock
from tocsin.cli.cluster import cluster
from tocsin.cli.completion import completion
from tocsin.cli.config import config
from tocsin.cli.dead import dead
from tocsin.cli.demo.command import demo
from tocsin.cli.failure import Interrupted
from tocsin.cli.feed import changes
from tocsin.cli.groups import groups
from tocsin.cli.importing import importing
from tocsin.cli.instances import instances
from tocsin.cli.jobs import cancel, get, ls, schedule
from tocsin.cli.keys import keys
from tocsin.cli.migrate import migrate
from tocsin.cli.move import move
from tocsin.cli.pools import pools
from tocsin.cli.queues import claim, pending, queues, result
from tocsin.cli.run import run
from tocsin.cli.schedules import schedules
from tocsin.cli.serve import serve
from tocsin.cli.several import submit
from tocsin.cli.simulate import simulate
from tocsin.cli.status import health, status
from tocsin.cli.streams import prepare, writing
from tocsin.cli.top import top
from tocsin.cli.transfer import export
from tocsin.cli.undoing import undo
from tocsin.cli.upcoming import upcoming
from tocsin.cli.why import history, why
from tocsin.cli.worker import worker
from tocsin.cli.workers import workers

EPILOG = """\b
Every option can be set in the environment: TOCSIN_<COMMAND>_<OPTION>, such as
TOCSIN_LS_LIMIT=20; those of `serve`, and --url, --token, --instance, --store,
--config and --json, are just TOCSIN_<OPTION>.

\b
Exit codes
  0    done
  1    the server refused, there is no such thing, or `check` found faults
  2    wrong usage or settings
  3    the server cannot be reached
  4    the store cannot be used: damaged, not there, held by another process
  5    the address cannot be bound
  6    what was found cannot be written to stdout
  7    `run --once`: another process has the store
  8    `run --once`: due work is left that should have been done
  130  stopped by a signal before it was done
"""


def _version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from importlib.metadata import version

    from tocsin.cli.output import put

    put(f"tocsin {version('tocsin')}")
    context.exit()


class Ordered(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def main(self, *args: Any, **more: Any) -> Any:
        prepare()
        return super().main(*args, **more)

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        with writing():  # --help and --version
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends it with the exit code that shells expect."""
        try:
            with writing():  # commands write so themselves; click writes their --help
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("stopped before the end") from None


@click.group(
    cls=Ordered,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TOCSIN"},
    epilog=EPILOG,
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, allow_from_autoenv=False,
    callback=_version, help="Show the version and exit.",
)  # fmt: skip
def main() -> None:
    """Durable scheduling: signed HTTP callbacks, on one file or PostgreSQL.

    Start with `tocsin demo` (ten seconds, nothing to set up), then `tocsin serve`.
    """


COMMANDS = (
    *(serve, run, worker, demo),
    *(schedule, submit, ls, get, result, pending, why, history, changes),
    *(cancel, reschedule, cancel_all, claim, complete, extend, dead),
    *(schedules, upcoming, importing, groups),
    *(top, status, activity, health, queues, pools, workers, instances, clock, catalog, audit, undo),
    *(simulate, check, backup, export, move, migrate, cluster),
    *(keys, config, completion),
)
"""The commands, in the order in which they are shown."""

for command in COMMANDS:
    main.add_command(command)
