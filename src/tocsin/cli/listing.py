"""Groups of commands that list when nothing else is said: `tocsin pools` is `tocsin pools ls`."""

from __future__ import annotations

import click


class ListingGroup(click.Group):
    """`ls` is the command of the group itself; its options may follow at once: `tocsin pools --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Completion sees the words as they are."""
        if not ctx.resilient_parsing and (not args or (args[0].startswith("-") and args[0] not in ("-h", "--help"))):
            args = ["ls", *args]
        return super().parse_args(ctx, args)
