"""`main`, the command group: which commands there are, and what all of them share.
Exit codes are part of the contract and listed in `failure.py` and in `tocsin --help`."""

from __future__ import annotations

import click

from tocsin.cli.backup import backup
from tocsin.cli.check import check
from tocsin.cli.config import config
from tocsin.cli.dead import dead
from tocsin.cli.demo import demo
from tocsin.cli.jobs import cancel, get, ls, schedule
from tocsin.cli.keys import keys
from tocsin.cli.serve import serve
from tocsin.cli.status import status

EPILOG = """\b
Every option can be set in the environment: TOCSIN_<COMMAND>_<OPTION>, such as
TOCSIN_LS_LIMIT=20; those of `serve`, and --url, --token, --instance and
--json, are just TOCSIN_<OPTION>.

\b
Exit codes
  0  done
  1  the server refused, or there is no such thing
  2  wrong usage or settings
  3  the server cannot be reached
  4  the store cannot be opened (another process holds it, ...)
  5  the address cannot be bound
"""


def _version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"tocsin {version('tocsin')}")
    context.exit()


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TOCSIN"},
    epilog=EPILOG,
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, allow_from_autoenv=False,
    callback=_version, help="Show the version and exit.",
)  # fmt: skip
def main() -> None:
    """Durable scheduling: signed HTTP callbacks, from one file.

    Start with `tocsin demo` (20 seconds, nothing to set up), then `tocsin serve`.
    """


for command in (serve, demo, schedule, ls, get, cancel, status, dead, keys, config, check, backup):
    main.add_command(command)
