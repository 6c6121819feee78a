"""Command groups that list by default: `tocsin pools` is `tocsin pools ls`."""

from __future__ import annotations

import click


class ListingGroup(click.Group):
    """A group whose default command is `ls`; the options of `ls` may follow directly: `tocsin pools --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `ls` where no command is given, except for completion."""
        if not ctx.resilient_parsing and (not args or (args[0].startswith("-") and args[0] not in ("-h", "--help"))):
            args = ["ls", *args]
        return super().parse_args(ctx, args)
