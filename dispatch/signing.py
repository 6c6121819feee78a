"""Standard Webhooks signatures: `v1,` + base64(HMAC-SHA256("id.timestamp.body")), one per active secret.

The specification: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tocsin.errors import SettingsError, SignatureError

PREFIX: Final = "whsec_"
MIN_BYTES: Final = 24
TOLERANCE_S: Final = 5 * 60
MAX_STAMP_DIGITS: Final = 15


def parse_secret(secret: str | bytes) -> bytes:
    """The key of `whsec_` + base64, or of at least 24 raw bytes. The SettingsError never shows the secret."""
    if not isinstance(secret, (str, bytes)):
        # bytes(32) would be a key of 32 zeros.
        raise SettingsError(f"a secret must be text or bytes, not {type(secret).__name__}")
    raw = _raw(secret)
    if raw.lstrip() != raw and raw.lstrip().startswith(PREFIX.encode()):
        raise SettingsError(f"a secret has spaces before its {PREFIX}: as raw bytes it would sign what nobody verifies")
    key = _decoded(_padded(raw[len(PREFIX) :])) if raw.startswith(PREFIX.encode()) else raw
    if key is None:
        several = ', and this looks like several with commas: give a list, like text.split(",")' if b"," in raw else ""
        raise SettingsError(f"a secret that starts with {PREFIX} must go on in base64{several}")
    if len(key) < MIN_BYTES:
        raise SettingsError(
            f"a secret has {len(key)} bytes, at least {MIN_BYTES} are needed: make one with `tocsin keys new`"
        )
    return key


class Signer:
    """Signs with every active secret, verifies with any of them, so secrets rotate without a gap.

    It does not change: who rotates secrets makes another one.
    """

    def __init__(self, secrets: Sequence[str | bytes]) -> None:
        if isinstance(secrets, (str, bytes)) or not secrets:
            raise SettingsError("secrets must be a list with at least one secret")
        # A keyed hash object is copied per message: the key schedule is computed once.
        self._keyed = [hmac.new(parse_secret(secret), digestmod=hashlib.sha256) for secret in secrets]

    def __repr__(self) -> str:
        return f"Signer({len(self._keyed)} secrets)"

    def sign(self, message_id: str, timestamp_s: int, body: bytes) -> str:
        """The value of `webhook-signature`, the first secret's signature first. The id must not hold a dot."""
        digests = self._digests(message_id, b"%d" % timestamp_s, body)
        return " ".join("v1," + base64.b64encode(digest).decode() for digest in digests)

    def verify(self, headers: Mapping[str, str], body: bytes, *, now_s: float) -> str:
        """The message id of a genuine request; header names in lower case. Raises SignatureError.

        Verify before parsing the body, and on its exact bytes.
        """
        message_id = headers.get("webhook-id", "")
        stamp = headers.get("webhook-timestamp", "")
        given = headers.get("webhook-signature", "")
        if not (message_id and stamp and given):
            raise SignatureError("webhook-id, webhook-timestamp and webhook-signature are needed")
        if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= MAX_STAMP_DIGITS):
            raise SignatureError("webhook-timestamp is not a number of seconds")
        if not abs(now_s - int(stamp)) <= TOLERANCE_S:  # true for a clock that is NaN, too
            raise SignatureError(f"webhook-timestamp is more than {TOLERANCE_S} s away from now")
        sent = list(_signatures(given))
        genuine = False
        for digest in self._digests(message_id, stamp.encode(), body):
            for signature in sent:  # every pair is compared: time tells nothing
                genuine |= hmac.compare_digest(digest, signature)
        if not genuine:
            raise SignatureError("webhook-signature fits none of the active secrets")
        return message_id

    def _digests(self, message_id: str, stamp: bytes, body: bytes) -> list[bytes]:
        if "." in message_id:
            raise SignatureError("a webhook-id must not hold a dot: the signed text uses it as delimiter")
        try:
            signed = b"%b.%b.%b" % (message_id.encode(), stamp, body)
        except UnicodeEncodeError:
            # Some servers hand on what is not UTF-8 as lone surrogates.
            raise SignatureError("a webhook-id must be UTF-8") from None
        digests = []
        for keyed in self._keyed:
            mac = keyed.copy()
            mac.update(signed)
            digests.append(mac.digest())
        return digests


def _raw(secret: str | bytes) -> bytes:
    try:
        return secret.encode() if isinstance(secret, str) else secret
    except UnicodeEncodeError:
        # Its exception would carry the secret.
        raise SettingsError("a secret holds characters that cannot be written as UTF-8") from None


def _padded(text: bytes) -> bytes:
    """Other libraries of the standard take secrets without their padding, too."""
    return text + b"=" * (-len(text) % 4)


def _signatures(given: str) -> Iterator[bytes]:
    for part in given.split(" "):
        version, _, text = part.partition(",")
        if version == "v1" and (signature := _decoded(text)) is not None:
            yield signature


def _decoded(text: str | bytes) -> bytes | None:
    """None if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
