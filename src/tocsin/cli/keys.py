"""`tocsin keys`: create secrets, and create and verify signatures by hand as the host and its receivers do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Final, TextIO, TypeVar

import click

SECRET_BYTES: Final = 32
NAMES: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")
C = TypeVar("C", bound=Callable[..., Any])


@click.group()
def keys() -> None:
    """Signing secrets for callbacks."""


def _shared(command: C) -> C:
    """Give `sign` and `verify` their common options. Secrets are never option values: others can read command lines."""
    options = [
        click.argument("body", type=click.File("rb"), default="-"),
        click.option(
            "--secrets-file", default=None, allow_from_autoenv=False, metavar="FILE",
            help="File with secrets.  [TOCSIN_SECRETS_FILE, or TOCSIN_SECRETS]",
        ),
        click.option("--json", "as_json", envvar="TOCSIN_JSON", is_flag=True, help="JSON on stdout."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@keys.command("new")
@click.option("--json", "as_json", envvar="TOCSIN_JSON", is_flag=True, help="JSON on stdout.")
def new(as_json: bool) -> None:
    """Print a new secret for TOCSIN_SECRETS.

    To rotate without a gap: put the new one first, keep the old one second
    until every receiver knows the new one, then drop the old one. A running
    server reads a changed TOCSIN_SECRETS_FILE by itself.
    """
    from tocsin.cli.output import emit, put

    secret = new_secret()
    if as_json:
        emit({"secret": secret})
    else:
        put(secret)


def new_secret() -> str:
    """Return `whsec_` and the base64 of 32 random bytes, the format of Standard Webhooks."""
    from base64 import b64encode
    from secrets import token_bytes

    return "whsec_" + b64encode(token_bytes(SECRET_BYTES)).decode()


@keys.command("sign")
@_shared
@click.option(
    "--id", "message_id", envvar="TOCSIN_KEYS_SIGN_ID", metavar="ID", help="The webhook-id (default: a new one)."
)
@click.option("--timestamp", type=click.IntRange(0, 10**15 - 1), metavar="SECONDS", help="Unix time (default: now).")
def sign(
    body: BinaryIO, secrets_file: str | None, as_json: bool, message_id: str | None, timestamp: int | None
) -> None:
    """Print the webhook headers of BODY (a file, or - for stdin).

    Signed with every secret in force, as a server does it. Send the same bytes:

    \b
      tocsin keys sign body.json > headers
      curl https://app.example/_tocsin/callback -H @headers \\
        -H 'content-type: application/json' --data-binary @body.json
    """
    from tocsin.cli.output import emit, now_ms, put
    from tocsin.dispatch.signing import Signer

    signer = Signer(_secrets(secrets_file))
    if message_id is None:
        message_id = _new_id()
    elif not re.fullmatch(r"[\x21-\x7e]{1,200}", message_id) or "." in message_id:
        raise click.BadParameter(
            "must be 1 to 200 characters of ASCII without spaces and dots (a dot ends it in the signed text)",
            param_hint="--id",
        )
    stamp = now_ms() // 1000 if timestamp is None else timestamp
    values = (message_id, str(stamp), signer.sign(message_id, stamp, body.read()))
    headers = dict(zip(NAMES, values, strict=True))
    if as_json:
        emit(headers)
        return
    for name, value in headers.items():
        put(f"{name}: {value}")


@keys.command("verify")
@_shared
@click.option(
    "--headers", type=click.File("r", "utf-8", "replace"), metavar="FILE", help="File with `name: value` lines."
)
@click.option(
    "-H",
    "--header",
    "given",
    envvar="TOCSIN_KEYS_VERIFY_HEADER",
    multiple=True,
    metavar="HEADER",
    help="One `name: value`; may come again.",
)
@click.option("--any-age", is_flag=True, help="Also when it is over five minutes old, or a minute ahead.")
def verify(
    body: BinaryIO, secrets_file: str | None, as_json: bool,
    headers: TextIO | None, given: Sequence[str], any_age: bool,
) -> None:  # fmt: skip
    """Check the headers of BODY (a file, or - for stdin).

    Exit code 0 and the position of the secret that signed it, or 1 and why not.
    Headers are those that `keys sign` prints or a receiver has logged; others
    among them are passed over. BODY must be the exact bytes.
    """
    from tocsin.cli.failure import Refused
    from tocsin.cli.output import emit, now_ms, put
    from tocsin.errors import SignatureError

    secrets = _secrets(secrets_file)
    if headers is None and not given:
        raise click.UsageError("the headers are missing: give --headers FILE or -H 'name: value'")
    try:
        found = _headers([*(headers.read().splitlines() if headers else ()), *given])
        position = _signed_by(secrets, found, body.read(), None if any_age else now_ms() / 1000)
    except SignatureError as error:
        if as_json:
            emit({"genuine": False, "reason": error.message, "secrets": len(secrets)})
            raise click.exceptions.Exit(Refused.exit_code) from None
        raise Refused(f"not genuine: {error.message}") from None
    if as_json:
        emit({"genuine": True, "secret": position, "secrets": len(secrets), "id": found[NAMES[0]]})
    else:
        put(f"genuine: signed with secret {position} of {len(secrets)}")


def _secrets(file: str | None) -> tuple[str, ...]:
    from tocsin.cli.failure import WrongSettings, settings_checked
    from tocsin.settings import load

    with settings_checked():
        secrets = load({"secrets_file": file}, os.environ, needed=("secrets",)).secrets
    if not secrets:
        raise WrongSettings("there are no secrets: set TOCSIN_SECRETS or TOCSIN_SECRETS_FILE, or give --secrets-file")
    return secrets


def _new_id() -> str:
    from secrets import token_urlsafe

    return f"msg_{token_urlsafe(16)}"


def _headers(lines: Iterable[str]) -> dict[str, str]:
    """Return the webhook headers among these; SignatureError if one occurs twice, as it is ambiguous."""
    from tocsin.errors import SignatureError

    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.strip().lstrip("<> ").lower()  # as `curl -v` marks what it sends and gets
        if not colon or name not in NAMES:
            continue
        if name in found:
            raise SignatureError(f"the header {name} is there more than once")
        found[name] = value.strip()
    return found


def _signed_by(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_s: float | None) -> int:
    """Return the number of the first secret that signed, from 1; SignatureError if none did. `now_s` None: any age."""
    from tocsin.dispatch.signing import Signer
    from tocsin.errors import SignatureError

    if now_s is None:
        stamp = headers.get("webhook-timestamp", "")
        now_s = int(stamp[:20]) if stamp.isascii() and stamp.isdigit() else 0
    Signer(secrets).verify(headers, body, now_s=now_s)
    for position, secret in enumerate(secrets, 1):
        try:
            Signer([secret]).verify(headers, body, now_s=now_s)
        except SignatureError:
            continue
        return position
    raise AssertionError("one of the secrets verified it a moment ago")
