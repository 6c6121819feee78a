"""Standard Webhooks signatures: `v1,` + base64(HMAC-SHA256("id.timestamp.body")), one per active secret.

The specification: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tocsin.dispatch.secret import parse_secret
from tocsin.dispatch.words import kind_of
from tocsin.errors import SettingsError, SignatureError

MAX_AGE_S: Final = 5 * 60
MAX_AHEAD_S: Final = 60
"""Of a timestamp: time on the way, and clocks that differ. What is ahead can be replayed for that much longer."""
MAX_STAMP_DIGITS: Final = 15


class Signer:
    """Signs with every active secret, verifies with any of them, so secrets rotate without a gap.

    It does not change: who rotates secrets makes another one.
    """

    def __init__(self, secrets: Sequence[str | bytes]) -> None:
        if isinstance(secrets, (str, bytes)):
            raise SettingsError(
                "secrets must be a list of secrets, and this is a single text: write secrets=[secret], or "
                'secrets=text.split(",") if it holds several'
            )
        if not isinstance(secrets, Sequence):
            raise SettingsError(f"secrets must be a list of secrets, not {kind_of(secrets)}")
        if not secrets:
            raise SettingsError("secrets must be a list with at least one secret")
        # A keyed hash object is copied per message: the key schedule is computed once.
        keys = [parse_secret(secret, named(n, len(secrets))) for n, secret in enumerate(secrets, 1)]
        self._keyed = [hmac.new(key, digestmod=hashlib.sha256) for key in keys]

    def __repr__(self) -> str:
        return f"Signer({len(self._keyed)} secrets)"

    def sign(self, message_id: str, timestamp_s: int, body: bytes) -> str:
        """Return the value of `webhook-signature`, the first secret's signature first. The id must not hold a dot."""
        digests = self._digests(message_id, b"%d" % timestamp_s, body)
        return " ".join(["v1," + b2a_base64(digest, newline=False).decode() for digest in digests])

    def verify(
        self,
        headers: Mapping[str, str],
        body: bytes,
        *,
        now_s: float,
        max_age_s: float = MAX_AGE_S,
        max_ahead_s: float = MAX_AHEAD_S,
    ) -> str:
        """Return the message id of a genuine request; header names in lower case. Raises SignatureError.

        Verify before parsing the body, and on its exact bytes. Its timestamp may be `max_age_s` old, or `max_ahead_s`
        ahead of `now_s`.
        """
        message_id = headers.get("webhook-id", "")
        stamp = headers.get("webhook-timestamp", "")
        given = headers.get("webhook-signature", "")
        if not (message_id and stamp and given):
            raise SignatureError("webhook-id, webhook-timestamp and webhook-signature are needed")
        if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= MAX_STAMP_DIGITS):
            raise SignatureError("webhook-timestamp is not a number of seconds")
        age_s = now_s - int(stamp)
        if not age_s <= max_age_s:  # true for a clock that is NaN, too
            raise SignatureError(f"webhook-timestamp is {age_s:.0f} s old, at most {max_age_s:g} s are taken")
        if age_s < -max_ahead_s:
            raise SignatureError(
                f"webhook-timestamp is {-age_s:.0f} s ahead of the clock here, at most {max_ahead_s:g} s are taken"
            )
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


def named(number: int, of: int) -> str:
    """Return how errors call a secret of several."""
    return f"secret {number} of {of}" if of > 1 else "a secret"


def _signatures(given: str) -> Iterator[bytes]:
    for part in given.split(" "):
        version, _, text = part.partition(",")
        if version == "v1" and (signature := _decoded(text)) is not None:
            yield signature


def _decoded(text: str | bytes) -> bytes | None:
    """Return None if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
