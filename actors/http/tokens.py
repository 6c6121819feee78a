"""Bearer tokens: `name:scope+scope[@instance-pattern]:secret`. Only a digest of the secret is kept, so nothing
that prints a token can show it; errors name a token by its position, because any part of a wrong one may be secret."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from tocsin.dispatch.secret import check_unquoted, wrapped
from tocsin.errors import SettingsError

SCOPES: Final = ("read", "schedule", "work", "operate", "admin")
SHAPE: Final = "name:scope+scope[@instance-pattern]:secret"

MIN_SECRET: Final = 8
"""Characters. Enough to stop slips such as `x`; only a random one of 16 and more is hard to guess."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_PATTERN: Final = re.compile(r"[A-Za-z0-9_.*?-]{1,128}", re.ASCII)
_SECRET: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_WORD: Final = re.compile(r"[a-z]{1,12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """The rights of the holder of one secret. `instances` is a pattern of instance names; None means all of them."""

    name: str
    scopes: frozenset[str]
    instances: str | None
    digest: bytes = field(repr=False)

    @property
    def grants(self) -> tuple[frozenset[str], str | None]:
        return self.scopes, self.instances

    def may(self, wanted: frozenset[str]) -> bool:
        """Return whether one of the wanted scopes is among its own."""
        return "admin" in self.scopes or not self.scopes.isdisjoint(wanted)

    def reaches(self, instance: str) -> bool:
        return self.instances is None or fnmatchcase(instance, self.instances)


Tokens = str | Sequence[str | Token]
"""Several tokens, or one text of them with commas."""


def parse_tokens(tokens: Tokens) -> tuple[Token, ...]:
    """Parse tokens; a SettingsError names the wrong one without its secret.

    A name may come again with another secret and the same grants: two secrets of one caller, who is changing from one
    to the other and stays the same caller meanwhile.
    """
    listed = [part.strip() for part in tokens.split(",") if part.strip()] if isinstance(tokens, str) else tokens
    parsed: list[Token] = []
    for number, token in enumerate(listed, 1):
        which = f"tokens: number {number} of {len(listed)}"
        one = token if isinstance(token, Token) else parse_token(token, which)
        for earlier in parsed:
            if earlier.name == one.name and earlier.grants != one.grants:
                raise SettingsError(
                    f"{which} has the name of an earlier one, but other scopes or instances: names tell callers apart"
                )
            if hmac.compare_digest(earlier.digest, one.digest):
                raise SettingsError(f"{which} has the secret of an earlier one: each needs its own")
        parsed.append(one)
    return tuple(parsed)


def parse_token(text: str, which: str = "token") -> Token:
    """Parse one token. A `*` in its instance pattern stands for any text, a `?` for one character (also a colon)."""
    if not isinstance(text, str):
        raise SettingsError(f"{which} must look like {SHAPE}")
    if (around := wrapped(text)) is not None:
        raise SettingsError(f"{which} {around}")
    if text.count(":") < 2:
        raise SettingsError(f"{which} must look like {SHAPE}")
    name, grants, secret = text.strip().split(":", 2)
    listed, limited, pattern = grants.partition("@")
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{which} must start with a name of 1 to 64 characters of [A-Za-z0-9_.-]: {SHAPE}")
    if limited and not _PATTERN.fullmatch(pattern):
        raise SettingsError(
            f"{which}: an instance pattern is 1 to 128 characters of [A-Za-z0-9_.-], `*` (any text) and `?` "
            "(any one character, also a colon)"
        )
    if not _SECRET.fullmatch(secret):
        raise SettingsError(f"{which}: the secret must be printable ASCII without spaces, and not empty")
    check_unquoted(secret, f"{which}: the secret")
    scopes = _scopes(listed, which)
    if len(secret) < MIN_SECRET:
        raise SettingsError(
            f"{which}: the secret has {len(secret)} {'character' if len(secret) == 1 else 'characters'}, at least "
            f"{MIN_SECRET} are needed: whoever reaches the server may guess a short one"
        )
    return Token(name, scopes, pattern if limited else None, _digest(secret))


def _scopes(listed: str, which: str) -> frozenset[str]:
    scopes = listed.split("+")
    for scope in scopes:
        if scope not in SCOPES:
            # What is no plain word may be a secret that slipped into this place.
            shown = f"unknown scope {scope!r}" if _WORD.fullmatch(scope) else "unknown scope"
            raise SettingsError(f"{which}: {shown}; choose from {', '.join(SCOPES)}, joined by +")
    return frozenset(scopes)


def find_token(tokens: Sequence[Token], secret: str) -> Token | None:
    """Return the token of this secret, in a time that does not tell how close a guess was."""
    digest = _digest(secret)
    found: Token | None = None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
