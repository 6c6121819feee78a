"""Signatures: ours and those of the `standardwebhooks` package understand each other; secrets stay secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from tocsin.dispatch.signing import Signer, parse_secret
from tocsin.errors import SettingsError, SignatureError

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OTHER = "whsec_" + base64.b64encode(KEY[::-1]).decode()
NOW = 1_800_000_000
BODIES = [
    b"",
    b"{}",
    '{"n":"grüße ☃"}'.encode(),
    rb'{ "b":1.0,  "a":"\u00e9" }',
    b"a.b.c",
    b"x" * 65_536,
    *(b'{"n":%d}' % n for n in range(14)),
]


def signed(signer: Signer, body: bytes = b"{}", message_id: str = "job:1-7", stamp: int = NOW) -> dict[str, str]:
    signature = signer.sign(message_id, stamp, body)
    return {"webhook-id": message_id, "webhook-timestamp": str(stamp), "webhook-signature": signature}


# ---- The standard --------------------------------------------------------------------------------


@pytest.mark.parametrize("body", BODIES)
def test_the_package_verifies_what_we_sign(body: bytes) -> None:
    headers = signed(Signer([SECRET]), body, stamp=int(time.time()))

    Webhook(SECRET).verify(body, headers, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(body, headers, json_parse=False)


@pytest.mark.parametrize("body", BODIES)
def test_we_verify_what_the_package_signs(body: bytes) -> None:
    signature = Webhook(SECRET).sign("job:1-7", datetime.fromtimestamp(NOW, UTC), body.decode())
    headers = {"webhook-id": "job:1-7", "webhook-timestamp": str(NOW), "webhook-signature": signature}

    assert Signer([SECRET]).verify(headers, body, now_s=NOW) == "job:1-7"


def test_the_signed_text_is_id_timestamp_body() -> None:
    digest = hmac.new(KEY, b"job:1-7.1800000000.{}", hashlib.sha256).digest()

    assert Signer([SECRET]).sign("job:1-7", NOW, b"{}") == "v1," + base64.b64encode(digest).decode()


@given(st.binary(max_size=200), st.text(st.characters(codec="ascii", exclude_characters=".", min_codepoint=33)))
def test_what_is_signed_verifies_and_nothing_else(body: bytes, message_id: str) -> None:
    signer = Signer([SECRET])
    headers = signed(signer, body, message_id or "x")

    assert signer.verify(headers, body, now_s=NOW) == (message_id or "x")
    with pytest.raises(SignatureError):
        signer.verify(headers, body + b" ", now_s=NOW)
    with pytest.raises(SignatureError):
        signer.verify({**headers, "webhook-id": headers["webhook-id"] + "x"}, body, now_s=NOW)


# ---- Rotation ------------------------------------------------------------------------------------


def test_every_active_secret_signs_the_first_one_first() -> None:
    both = Signer([SECRET, OTHER]).sign("a:1", NOW, b"{}")

    assert both == Signer([SECRET]).sign("a:1", NOW, b"{}") + " " + Signer([OTHER]).sign("a:1", NOW, b"{}")


@pytest.mark.parametrize("receiver", [[SECRET], [OTHER], [OTHER, SECRET]])
def test_a_receiver_with_old_new_or_both_secrets_accepts_during_rotation(receiver: list[str]) -> None:
    assert Signer(receiver).verify(signed(Signer([SECRET, OTHER])), b"{}", now_s=NOW) == "job:1-7"


def test_a_retired_secret_is_refused() -> None:
    with pytest.raises(SignatureError, match="none of the active secrets"):
        Signer([OTHER]).verify(signed(Signer([SECRET])), b"{}", now_s=NOW)


# ---- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("off", [-300, -299.5, 0, 300])
def test_five_minutes_off_are_tolerated_both_ways(off: float) -> None:
    signer = Signer([SECRET])

    assert signer.verify(signed(signer), b"{}", now_s=NOW + off)


@pytest.mark.parametrize("off", [-301, 301, 10**9])
def test_more_is_a_replay(off: float) -> None:
    signer = Signer([SECRET])

    with pytest.raises(SignatureError, match="webhook-timestamp is more than 300 s away"):
        signer.verify(signed(signer), b"{}", now_s=NOW + off)


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_refused(missing: str) -> None:
    signer = Signer([SECRET])
    headers = signed(signer)
    del headers[missing]

    with pytest.raises(SignatureError, match="are needed"):
        signer.verify(headers, b"{}", now_s=NOW)


@pytest.mark.parametrize("stamp", ["soon", "1.5", "-1800000000", "+1800000000", "１８０", "9" * 5000, "0x6b49d200"])
def test_a_timestamp_that_is_no_number_of_seconds_is_refused(stamp: str) -> None:
    signer = Signer([SECRET])

    with pytest.raises(SignatureError, match="is not a number"):
        signer.verify({**signed(signer), "webhook-timestamp": stamp}, b"{}", now_s=NOW)


@pytest.mark.parametrize("header", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_header_that_is_no_text_is_a_bad_signature_and_no_crash(header: str) -> None:
    """Some servers hand on bytes that are not UTF-8 as lone surrogates."""
    signer = Signer([SECRET])

    with pytest.raises(SignatureError):
        signer.verify({**signed(signer), header: "\udcff"}, b"{}", now_s=NOW)


def test_a_clock_that_tells_no_time_verifies_nothing() -> None:
    signer = Signer([SECRET])

    with pytest.raises(SignatureError, match="300 s away"):
        signer.verify(signed(signer), b"{}", now_s=math.nan)


def test_the_timestamp_is_verified_as_it_was_sent() -> None:
    signer = Signer([SECRET])

    with pytest.raises(SignatureError, match="none of the active secrets"):
        signer.verify({**signed(signer), "webhook-timestamp": f"0{NOW}"}, b"{}", now_s=NOW)


@pytest.mark.parametrize("signature", ["v1", "v1,", "v1,!!", "v1a,x", ",", " ", "v2,{}", "{}", "v1 {}", "v1,é"])
def test_a_malformed_signature_is_refused(signature: str) -> None:
    signer = Signer([SECRET])
    genuine = signed(signer)["webhook-signature"].removeprefix("v1,")

    with pytest.raises(SignatureError):
        signer.verify({**signed(signer), "webhook-signature": signature.format(genuine)}, b"{}", now_s=NOW)


def test_a_genuine_signature_among_strange_ones_counts() -> None:
    signer = Signer([SECRET])
    headers = signed(signer)
    headers["webhook-signature"] = f"v1a,abc v1,??? v1,QUJD {headers['webhook-signature']} "

    assert signer.verify(headers, b"{}", now_s=NOW)


def test_an_id_with_the_delimiter_is_neither_signed_nor_verified() -> None:
    signer = Signer([SECRET])
    headers = {**signed(signer), "webhook-id": "a.1"}

    with pytest.raises(SignatureError, match="must not hold a dot"):
        signer.sign("a.1", NOW, b"{}")
    with pytest.raises(SignatureError, match="must not hold a dot"):
        signer.verify(headers, b"{}", now_s=NOW)


def test_a_body_of_text_is_a_mistake_of_the_caller() -> None:
    body: Any = "{}"

    with pytest.raises(TypeError):
        Signer([SECRET]).verify(signed(Signer([SECRET])), body, now_s=NOW)


# ---- Secrets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "secret",
    [
        SECRET,
        SECRET.encode(),
        SECRET.rstrip("="),
        KEY,
    ],
)
def test_forms_of_one_secret(secret: str | bytes) -> None:
    assert parse_secret(secret) == KEY


def test_a_raw_secret_is_taken_as_it_is() -> None:
    assert parse_secret("correct horse battery staple") == b"correct horse battery staple"
    assert parse_secret("grüße aus der schlüsselei") == "grüße aus der schlüsselei".encode()


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("", "has 0 bytes"),
        ("short-and-secret", "has 16 bytes"),
        (b"short-and-secret", "has 16 bytes"),
        ("whsec_", "has 0 bytes"),
        ("whsec_" + base64.b64encode(b"short-and-secret").decode(), "has 16 bytes"),
        ("whsec_not base64, but secret and long enough", "must go on in base64"),
        ("whsec_" + "_-" * 20, "must go on in base64"),
        ("whsec_" + "é" * 40, "must go on in base64"),
        (f"{SECRET},{OTHER}", "looks like several with commas: give a list"),
        (" " + SECRET, "has spaces before its whsec_"),
        (b"\n" + SECRET.encode(), "has spaces before its whsec_"),
        (SECRET + "\n", "must go on in base64"),
        ("\udc80 secret that is long enough", "UTF-8"),
        (32, "must be text or bytes, not int"),
        (None, "must be text or bytes, not NoneType"),
    ],
)
def test_a_bad_secret_is_refused_and_never_shown(secret: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        parse_secret(secret)

    error: BaseException | None = caught.value
    assert SECRET[6:20] not in str(error) and "secret and long" not in str(error) and "short-and" not in str(error)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("secrets", [[], (), SECRET, KEY])
def test_secrets_are_a_list_of_at_least_one(secrets: Any) -> None:
    with pytest.raises(SettingsError, match="a list with at least one"):
        Signer(secrets)


def test_nothing_shows_the_secret() -> None:
    signer = Signer([SECRET, OTHER])
    shown = f"{signer!r} {signer} {vars(signer)}"

    assert repr(signer) == "Signer(2 secrets)"
    assert SECRET[6:20] not in shown and repr(KEY)[2:20] not in shown
