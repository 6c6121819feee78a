"""`tocsin keys`: signing secrets."""

from __future__ import annotations

import click

SECRET_BYTES = 32


@click.group()
def keys() -> None:
    """Signing secrets for callbacks."""


@keys.command("new")
@click.option("--json", "as_json", envvar="TOCSIN_JSON", is_flag=True, help="JSON on stdout.")
def new(as_json: bool) -> None:
    """Print a new secret for TOCSIN_SECRETS.

    To rotate without a gap: put the new one first, keep the old one second
    until every receiver knows the new one, then drop the old one.
    """
    from tocsin.cli.output import emit

    secret = new_secret()
    if as_json:
        emit({"secret": secret})
    else:
        click.echo(secret)


def new_secret() -> str:
    """`whsec_` and the base64 of 32 random bytes, as Standard Webhooks writes secrets."""
    from base64 import b64encode
    from secrets import token_bytes

    return "whsec_" + b64encode(token_bytes(SECRET_BYTES)).decode()
