"""`tocsin config show`: the settings `tocsin serve` would use here, and where each came from."""

from __future__ import annotations

import os
from typing import Any, Final

import click

from tocsin.cli.client import local_url
from tocsin.cli.failure import settings_checked
from tocsin.cli.output import emit, show
from tocsin.cli.words import printable

COMMANDS: Final[dict[str, Any]] = {
    "log_level": "warning",
    "access_log": False,
    "token": None,
    "instance": "default",
    "json": False,
}
"""Settings that commands read themselves, from option or environment, and what they are otherwise. `url` is another:
where nobody says it, it follows from host and port."""


@click.group()
def config() -> None:
    """The settings of `tocsin serve`."""


@config.command("show")
@click.option("--config", "config_file", allow_from_autoenv=False, metavar="FILE", help="The TOML file.")
@click.option("--origin", is_flag=True, help="Also say where each value came from.")
@click.option("--json", "as_json", envvar="TOCSIN_JSON", is_flag=True, help="JSON on stdout.")
def config_show(config_file: str | None, origin: bool, as_json: bool) -> None:
    """Show the settings in force, of the server and of the commands.

    Secrets and tokens are counted, never shown. What a command line says
    itself is not known here.
    """
    from tocsin.settings import load

    with settings_checked():
        settings = load({"config": config_file}, os.environ)
    values, sources = settings.shown(), dict(settings.sources)
    for name, (value, source) in _read_by_commands(config_file).items():
        values[name], sources[name] = value, source
    if as_json:
        emit({name: {"value": value, "origin": sources[name]} for name, value in values.items()} if origin else values)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in values.items():
        listed = ", ".join(value) or None if isinstance(value, tuple) else value
        shown = Text("not set", style="dim") if listed is None else Text(printable(listed))
        table.add_row(Text(name), shown, *([Text(sources[name], style="dim")] if origin else []))
    show(table)


def _read_by_commands(config_file: str | None) -> dict[str, tuple[Any, str]]:
    """Return value and origin of the settings that are not the host's: logging, and the server that commands use."""
    given_url, (url, source) = os.environ.get("TOCSIN_URL"), local_url(config_file)
    found: dict[str, tuple[Any, str]] = {"url": (given_url, "TOCSIN_URL") if given_url else (url, source or "default")}
    for name, default in COMMANDS.items():
        variable = "TOCSIN_" + name.upper()
        given = os.environ.get(variable)
        if not given:
            found[name] = (default, "default")
        else:
            found[name] = ("(given)" if name == "token" else given, variable)
    return found
