"""Ask before an operation that cannot be undone."""

from __future__ import annotations

import sys

import click


def confirm(words: str, *, yes: bool, dry_run: bool) -> None:
    """Continue only with `--yes` or after a prompt. Without a terminal to prompt on, fail as wrong usage.
    `dry_run`: the command has an option of that name."""
    if yes:
        return
    if not sys.stdin.isatty():
        instead = " (or --dry-run to see what it would do)" if dry_run else ""
        raise click.UsageError(f"{words} say --yes to do it without being asked{instead}")
    click.confirm(f"{words} go on?", abort=True, err=True)
