"""Standard Webhooks signatures: `v1,` + base64(HMAC-SHA256("id.timestamp.body")), one per active secret.

The specification: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from tocsin.errors import SettingsError, SignatureError

PREFIX: Final = "whsec_"
MIN_BYTES: Final = 24
TOLERANCE_S: Final = 5 * 60


def parse_secret(secret: str | bytes) -> bytes:
    """`whsec_` + base64, or at least 24 raw bytes. The error never shows the secret."""
    if isinstance(secret, str) and secret.startswith(PREFIX):
        try:
            key = base64.b64decode(secret[len(PREFIX) :], validate=True)
        except (binascii.Error, ValueError):
            raise SettingsError(f"a secret that starts with {PREFIX} must go on in base64") from None
    else:
        key = secret.encode() if isinstance(secret, str) else bytes(secret)
    if len(key) < MIN_BYTES:
        raise SettingsError(
            f"a secret has {len(key)} bytes, at least {MIN_BYTES} are needed: make one with `tocsin keys new`"
        )
    return key


class Signer:
    """Signs with every active secret, verifies with any of them, so secrets rotate without a gap."""

    def __init__(self, secrets: Sequence[str | bytes]) -> None:
        if isinstance(secrets, (str, bytes)) or not secrets:
            raise SettingsError("secrets must be a list with at least one secret")
        # A keyed hash object is copied per message: the key schedule is computed once.
        self._keyed = [hmac.new(parse_secret(secret), digestmod=hashlib.sha256) for secret in secrets]

    def __repr__(self) -> str:
        return f"Signer({len(self._keyed)} secrets)"

    def sign(self, message_id: str, timestamp_s: int, body: bytes) -> str:
        """The value of `webhook-signature`, the first secret's signature first."""
        return " ".join(
            "v1," + base64.b64encode(digest).decode() for digest in self._digests(message_id, timestamp_s, body)
        )

    def verify(self, headers: Mapping[str, str], body: bytes, *, now_s: float) -> str:
        """The message id of a genuine request; header names in lower case. Raises SignatureError.

        Verify before parsing the body, and on its exact bytes.
        """
        message_id = headers.get("webhook-id", "")
        stamp = headers.get("webhook-timestamp", "")
        given = headers.get("webhook-signature", "")
        if not (message_id and stamp and given):
            raise SignatureError("webhook-id, webhook-timestamp and webhook-signature are needed")
        if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 15):
            raise SignatureError("webhook-timestamp is not a number of seconds")
        if abs(now_s - int(stamp)) > TOLERANCE_S:
            raise SignatureError(f"webhook-timestamp is more than {TOLERANCE_S} s away from now")
        claimed = [part.partition(",") for part in given.split(" ")]
        sent = [_decoded(signature) for version, _, signature in claimed if version == "v1"]
        genuine = False
        for digest in self._digests(message_id, int(stamp), body):
            for signature in sent:  # every pair is compared: time tells nothing
                genuine |= hmac.compare_digest(digest, signature)
        if not genuine:
            raise SignatureError("webhook-signature fits none of the active secrets")
        return message_id

    def _digests(self, message_id: str, timestamp_s: int, body: bytes) -> list[bytes]:
        if "." in message_id:
            raise SignatureError("a webhook-id must not hold a dot: the signed text uses it as delimiter")
        signed = b"%b.%d.%b" % (message_id.encode(), timestamp_s, body)
        digests = []
        for keyed in self._keyed:
            mac = keyed.copy()
            mac.update(signed)
            digests.append(mac.digest())
        return digests


def _decoded(signature: str) -> bytes:
    try:
        return base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return b""
