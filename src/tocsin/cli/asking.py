"""Asking before what cannot be undone."""

from __future__ import annotations

import sys

import click


def confirm(words: str, *, yes: bool) -> None:
    """Go on only if the user said `--yes`, or says so now. Where nobody can be asked, wrong usage."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{words} say --yes to do it without being asked (or --dry-run to see what it would do)")
    click.confirm(f"{words} go on?", abort=True, err=True)
