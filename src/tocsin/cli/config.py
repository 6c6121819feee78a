"""`tocsin config show`: the settings `tocsin serve` would use here, and where each came from."""

from __future__ import annotations

import os

import click

from tocsin.cli.failure import WrongSettings
from tocsin.cli.output import emit, show


@click.group()
def config() -> None:
    """The settings of `tocsin serve`."""


@config.command("show")
@click.option("--config", "config_file", allow_from_autoenv=False, metavar="FILE", help="The TOML file.")
@click.option("--origin", is_flag=True, help="Also say where each value came from.")
@click.option("--json", "as_json", envvar="TOCSIN_JSON", is_flag=True, help="JSON on stdout.")
def config_show(config_file: str | None, origin: bool, as_json: bool) -> None:
    """Show the settings in force. Secrets and tokens are counted, never shown."""
    from tocsin.errors import SettingsError
    from tocsin.settings import load

    try:
        settings = load({"config": config_file}, os.environ)
    except SettingsError as error:
        raise WrongSettings(str(error)) from None
    values = settings.shown()
    if as_json:
        emit(
            {name: {"value": value, "origin": settings.sources[name]} for name, value in values.items()}
            if origin
            else values
        )
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in values.items():
        shown = Text("not set", style="dim") if value is None else Text(str(value))
        table.add_row(Text(name), shown, *([Text(settings.sources[name], style="dim")] if origin else []))
    show(table)
