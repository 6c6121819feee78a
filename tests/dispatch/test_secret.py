"""Secrets as files, shells and people hand them on: taken as they are meant, or refused by what was found."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tocsin import ActorHost, LeaseClient, Receiver
from tocsin.actors.http.tokens import parse_tokens
from tocsin.dispatch.secret import parse_secret
from tocsin.errors import SettingsError
from tocsin.settings import load

KEY: Final = bytes([251, 239, 190] * 10) + bytes(2)  # its base64 has + and /, and ends with =
SECRET: Final = "whsec_" + base64.b64encode(KEY).decode()
OTHER: Final = "whsec_" + base64.b64encode(bytes(range(32))).decode()
PAYLOAD: Final = SECRET[6:]
URL_SAFE: Final = "whsec_" + base64.urlsafe_b64encode(KEY).decode()


@pytest.mark.parametrize("secret", [SECRET, SECRET.encode(), KEY])
def test_forms_of_one_secret(secret: str | bytes) -> None:
    assert parse_secret(secret) == KEY


@pytest.mark.parametrize(
    "secret",
    [
        "correct horse battery staple", "grüße aus der schlüsselei", "a=b:c,d;'e' and more of it",
        '"a raw one that stands in quotes"', "=" * 24, "two lines\nof one secret are fine",
        b"\x00\xef\xbb\xbf" * 8, b' "bytes by chance" may be any \n', bytes(24),
    ],
)  # fmt: skip
def test_a_raw_secret_is_taken_as_it_is(secret: str | bytes) -> None:
    assert parse_secret(secret) == (secret.encode() if isinstance(secret, str) else secret)


MANGLED: Final = {
    # Around it.
    f'"{SECRET}"': "has a quotation mark before it",
    f"'{SECRET}'": "has a quotation mark before it",
    f"\u201c{SECRET}\u201d": "has a quotation mark before it",
    f"`{SECRET}`": "has a quotation mark before it",
    f'{SECRET}"': "has a quotation mark after it",
    f"\ufeff{SECRET}": "has a byte order mark before it",
    f"\u00ef\u00bb\u00bf{SECRET}": "has a byte order mark before it",
    f"TOCSIN_SECRETS={SECRET}": "has a name and `=` before it",
    f"export TOCSIN_SECRETS={SECRET}": "has a name and `=` before it",
    f'TOCSIN_SECRETS="{SECRET}"': "has a name and `=` before it: write only what comes after that, without quotes",
    f"secret: {SECRET}": "has 8 characters before its whsec_",
    f"Bearer {SECRET}": "has 7 characters before its whsec_",
    f"#{SECRET}": "is a comment",
    f'["{SECRET}"]': "has a bracket before it",
    f"\u200b{SECRET}": "has an invisible character before its whsec_",
    # The prefix.
    SECRET.upper(): "in capital letters",
    f"Whsec_{PAYLOAD}": "in capital letters",
    f"whsec-{PAYLOAD}": "has a `-` after whsec",
    f"whsec _{PAYLOAD}": "has white space after whsec",
    f"whsec {PAYLOAD}": "has white space after whsec",
    f"whsec{PAYLOAD}": "has something else after whsec",
    f"whsec%5F{PAYLOAD}": "is percent-encoded",
    "a long one that ends with whsec": "has 26 characters before its whsec_",
    f"whsec_{SECRET}": "has another whsec_ in it",
    # What comes after.
    URL_SAFE: "continues in base64url",
    SECRET.rstrip("="): "must end with 1 `=`",
    f"{SECRET}=": "must end with 1 `=`",
    SECRET[:-2]: "must end with 2 `=`",
    SECRET[:-3]: "is it cut off",
    SECRET.replace("+", "%2B").replace("/", "%2F"): "is percent-encoded: write \\+, / and =",
    f"{SECRET[:20]} {SECRET[20:]}": "has white space in it: is it broken into lines",
    f"{SECRET[:20]}\r\n{SECRET[20:]}": "has white space in it: is it broken into lines",
    f"{SECRET};": "has a comma or semicolon in it",
    f"{SECRET};{OTHER}": "has another whsec_ in it: several are given as a list, or separated by commas",
    f"{SECRET} {OTHER}": "has another whsec_ in it",
    f"whsec_{PAYLOAD[:-1]}\u200b=": "1 kinds of characters in it are not of that",
    "whsec_" + "é" * 40: "1 kinds of characters in it are not of that",
    "whsec_" + "=" * 40: "is it cut off",
    # Other than that.
    f"whsk_{PAYLOAD}": "is a key for asymmetric signatures",
    "\ufeffa raw secret, in a file with a mark": "has a byte order mark before it",
    "a\0 \0r\0a\0w\0 \0o\0n\0e\0 \0i\0n\0 \0U\0T\0F\0": "holds an invisible character",
    "a raw secret with zero\u200bwidth": "holds an invisible character",
    "short-and-secret": "has 16 bytes, at least 24 are needed: make one with `tocsin keys new`",
    "whsec_" + base64.b64encode(b"short-and-secret").decode(): "has 16 bytes",
    "whsec_": "has 0 bytes",
}  # fmt: skip
SETTINGS_STRIP: Final = {
    f" {SECRET}": "has white space before its whsec_",
    f"\n{SECRET}": "has white space before its whsec_",
    f"{SECRET}\r\n": "ends with white space: strip it",
    f"{SECRET} ": "ends with white space: strip it",
    "a raw secret and the end of its line\n": "begins or ends with white space",
    "\ta raw secret that was pasted so": "begins or ends with white space",
    f"{SECRET},": "has a comma or semicolon in it",
    f"{SECRET},{OTHER}": "has another whsec_ in it: several are given as a list",
}


def by_settings(secret: str) -> Any:
    return load({}, {"TOCSIN_SECRETS": secret})


def by_host(secret: str) -> Any:
    return ActorHost.open("memory:", origin="https://app.example", secrets=[secret])


DOORS: Final = {"host": by_host, "receiver": lambda secret: Receiver([secret]), "parser": parse_secret}


def assert_refused(take: Callable[[Any], Any], secret: str | bytes, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        take(secret)

    shown = str(caught.value)
    assert not any(part in shown for part in (PAYLOAD[:8], URL_SAFE[6:14], OTHER[6:14], "short-and", "raw one"))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("door", [*DOORS, "settings"])
@pytest.mark.parametrize(("secret", "said"), MANGLED.items())
def test_a_mangled_secret_is_refused_at_every_door_by_what_was_found(secret: str, said: str, door: str) -> None:
    assert_refused(by_settings if door == "settings" else DOORS[door], secret, said)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("secret", "said"), SETTINGS_STRIP.items())
def test_what_settings_take_away_is_refused_where_nobody_does(secret: str, said: str, door: str) -> None:
    assert_refused(DOORS[door], secret, said)


@pytest.mark.parametrize("secret", [secret for secret in MANGLED if secret.isascii() and "raw" not in secret])
def test_bytes_are_looked_at_as_well(secret: str) -> None:
    if "\0" not in secret and "whsk_" not in secret:
        assert_refused(parse_secret, secret.encode(), MANGLED[secret])


@pytest.mark.parametrize("secret", [32, None, ["whsec_"], 1.5])
def test_a_secret_of_another_type_is_refused(secret: Any) -> None:
    with pytest.raises(SettingsError, match="a secret must be text or bytes, not"):
        parse_secret(secret)


def test_a_secret_that_is_no_unicode_is_refused_and_not_shown() -> None:
    assert_refused(parse_secret, "\udc80 secret that is a raw one", "cannot be written as UTF-8")


# ---- Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [f"{SECRET}\n", f"{SECRET}\r\n{OTHER}\r\n", f"\n {SECRET} ,\n\n", f"{SECRET},{OTHER},"]
)
def test_ends_of_lines_blanks_and_commas_in_a_file_are_no_part_of_a_secret(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys").write_bytes(text.encode())
    secrets = load({"secrets_file": "keys"}, {}, directory=tmp_path).secrets

    assert secrets == ((SECRET, OTHER) if OTHER in text else (SECRET,))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xef\xbb\xbf" + SECRET.encode(), "has a byte order mark before it"),
        (b"\xef\xbb\xbfa raw secret of enough bytes", "has a byte order mark before it"),
        (SECRET.encode("utf-16"), "it is not UTF-8 text"),
        (SECRET.encode("utf-16-le"), "holds an invisible character"),
        (f"TOCSIN_SECRETS={SECRET}".encode(), "has a name and `=` before it"),
        (f"{OTHER}\nTOCSIN_SECRETS='{SECRET}'\n".encode(), "secret 2 of 2 has a name and `=` before it"),
        (f"# made on the first of May\n{SECRET}".encode(), "line 1 of .* is a comment, and the file may hold none"),
    ],
)
def test_a_mangled_secrets_file_is_refused_by_what_was_found(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "keys").write_bytes(content)

    assert_refused(
        lambda file: load({"secrets_file": file}, {}, directory=tmp_path), "keys", f"(?s)secrets-file.*{said}"
    )


# ---- Tokens --------------------------------------------------------------------------------------

TOKEN: Final = "ops:admin:hush-hush-hush"
MANGLED_TOKENS: Final = {
    f'"{TOKEN}"': "has a quotation mark before it",
    f"'{TOKEN},app:read:hush-hush'": "number 1 of 2 has a quotation mark before it",
    f"TOCSIN_TOKENS={TOKEN}": "has a name and `=` before it",
    f"\ufeff{TOKEN}": "has a byte order mark before it",
    f'["{TOKEN}"]': "has a bracket before it",
    'ops:admin:"hush-hush-hush"': "the secret has quotation marks around it",
}


@pytest.mark.parametrize("take", [parse_tokens, lambda text: load({}, {"TOCSIN_TOKENS": text})])
@pytest.mark.parametrize(("text", "said"), MANGLED_TOKENS.items())
def test_a_mangled_token_is_refused_by_what_was_found(text: str, said: str, take: Callable[[str], Any]) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        take(text)

    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("token", ['"hush-hush"', "'hush-hush'"])
def test_a_client_sends_no_token_in_quotes(token: str) -> None:
    with pytest.raises(SettingsError, match="token has quotation marks around it") as caught:
        LeaseClient(token=token)

    assert "hush" not in str(caught.value)


def test_a_secret_of_a_token_may_hold_what_it_may_hold() -> None:
    assert (
        len(
            parse_tokens(
                ["a:read:\"half a quote'".replace(" ", ""), "b:read:========", "c:read:whsec_xy", "d:read:key=value"]
            )
        )
        == 4
    )
