"""`tocsin completion`: the script with which a shell completes commands, options and values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tocsin.cli.streams import writing

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, /, shell: str) -> None:
    """Print a script that completes commands, options and values.

    \b
    bash  eval "$(tocsin completion bash)"         in ~/.bashrc
    zsh   eval "$(tocsin completion zsh)"          in ~/.zshrc, after compinit
    fish  tocsin completion fish > ~/.config/fish/completions/tocsin.fish

    Ids are not completed: that would ask a server at every key.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click has all three"
    with writing():
        click.echo(kind(context.find_root().command, {}, "tocsin", "_TOCSIN_COMPLETE").source())
