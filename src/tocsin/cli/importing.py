"""`tocsin import`: an instance of an export; the lines of a crontab as schedules of an owner, put as a set."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Final

import click

from tocsin.cli.client import Accepted, Connection, client_command
from tocsin.cli.failure import No
from tocsin.cli.output import Column, emit, print_rows
from tocsin.cli.transfer import import_instance
from tocsin.cli.words import printable, say

if TYPE_CHECKING:
    from tocsin.cli.crontab import Crontab

COLUMNS: Final = (Column("NAME", 30), Column("CRON", 18), Column("PATH", whole=True))


class ImportGroup(click.Group):
    """A group whose default command is `instance`: `tocsin import FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["instance", *args]
        return super().parse_args(ctx, args)


@click.group("import", cls=ImportGroup)
def importing() -> None:
    """Import an export, or what another system runs."""


importing.add_command(import_instance)


@importing.command("crontab")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--path-prefix", metavar="TEXT", default="cron:", show_default=True, help="Before each path.")
@click.option("--timezone", metavar="ZONE", help="Whose clock times are on (default: CRON_TZ, or UTC).")
@click.option("--queue", metavar="NAME", help="Workers pull the jobs; no callbacks.")
@click.option("--max-retries", type=click.IntRange(0, 100), default=0, show_default=True, help="After a failure.")
@click.option("--owner", metavar="NAME", default="crontab", show_default=True, help="Whose set this is.")
@click.option("--prune", is_flag=True, help="Remove what this owner had and FILE has not.")
@click.option("--system", is_flag=True, help="Lines name a user, as in /etc/crontab.")
@click.option("--dry-run", is_flag=True, help="Show what would be put; ask no server.")
@client_command
def import_crontab(
    connection: Connection,
    /,
    file: IO[str],
    path_prefix: str,
    timezone: str | None,
    queue: str | None,
    max_retries: int,
    owner: str,
    prune: bool,
    system: bool,
    dry_run: bool,
) -> None:
    """Make schedules of the lines of a crontab.

    Each is called back at the path of its program, with the command line in
    its args: nothing runs here. The same file again changes nothing. Lines
    that cannot be taken are listed; exit code 1 if cron would run one of them.

    \b
    crontab -l | tocsin import crontab - --timezone Europe/Berlin --dry-run
    """
    from tocsin.cli.crontab import read

    crontab = read(_text(file), prefix=path_prefix, timezone=timezone, system=system)
    body = {"schedules": [one.definition(queue, max_retries) for one in crontab.entries], "prune": prune}
    try:
        answer = {} if dry_run else connection.put(f"/owners/{_owner(owner)}/schedules", body)
    except Accepted as kept:
        answer = kept.answer
    if connection.as_json:
        left_out = [{"line": one.line, "text": one.text, "why": one.why} for one in crontab.left_out]
        emit({**answer, **body, "leftOut": left_out})
    else:
        _print(crontab, answer, owner, dry_run=dry_run)
    jobs = sum(one.job for one in crontab.left_out)
    if jobs:
        raise No(f"{jobs} {'line that cron runs was' if jobs == 1 else 'lines that cron runs were'} left out")


def _text(file: IO[str]) -> str:
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{printable(file.name)} is not UTF-8: byte {error.start} is not") from None


def _owner(name: str) -> str:
    from tocsin.cli.names import schedule_in_path

    return schedule_in_path(name)


def _print(crontab: Crontab, answer: dict[str, Any], owner: str, *, dry_run: bool) -> None:
    """Print the schedules on stdout, and on stderr what is to be said of them."""
    if crontab.entries:
        print_rows(COLUMNS, [(f"{owner}:{one.name}", one.cron, one.path) for one in crontab.entries])
    zones = sorted({one.timezone for one in crontab.entries})
    count = len(crontab.entries)
    done = "would be put" if dry_run else "accepted, and put once there is an owner" if "accepted" in answer else "put"
    say(f"{count} schedule{'' if count == 1 else 's'} {done}{', on the clock of ' if zones else ''}{', '.join(zones)}")
    if zones == ["UTC"]:
        say("cron reads times on the clock of its machine: if that is not UTC, give --timezone")
    for name in answer.get("orphaned", ()):
        say(f"{printable(name)} is not in the file any more and goes on: --prune removes it")
    for name in answer.get("removed", ()):
        say(f"removed {printable(name)}, which is not in the file any more")
    for one in crontab.left_out:
        say(f"line {one.line} is left out: {printable(one.text)}\n  {one.why}")
