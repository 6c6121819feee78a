"""Signatures: ours and those of the `standardwebhooks` package understand each other; secrets stay secret."""

from __future__ import annotations

import ast
import base64
import hashlib
import hmac
import math
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from tocsin.dispatch import signing
from tocsin.dispatch.signing import Signer
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


@pytest.mark.parametrize("sender", [SECRET, OTHER])
def test_a_receiver_with_both_secrets_accepts_a_sender_of_either(sender: str) -> None:
    assert Signer([OTHER, SECRET]).verify(signed(Signer([sender])), b"{}", now_s=NOW) == "job:1-7"


def test_a_retired_secret_is_refused() -> None:
    with pytest.raises(SignatureError, match="none of the active secrets"):
        Signer([OTHER]).verify(signed(Signer([SECRET])), b"{}", now_s=NOW)


# ---- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("age", [-60, -59.5, 0, 299, 300])
def test_five_minutes_on_the_way_and_a_minute_between_clocks_are_tolerated(age: float) -> None:
    signer = Signer([SECRET])

    assert signer.verify(signed(signer), b"{}", now_s=NOW + age)


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (301, "is 301 s old, at most 300 s are taken"), (10**9, "s old, at most 300 s"),
        (-61, "is 61 s ahead of the clock here, at most 60 s are taken"), (-299, "299 s ahead"), (-(10**9), "s ahead"),
    ],
)  # fmt: skip
def test_more_is_a_replay_or_a_wrong_clock(age: float, said: str) -> None:
    signer = Signer([SECRET])

    with pytest.raises(SignatureError, match=said):
        signer.verify(signed(signer), b"{}", now_s=NOW + age)


def test_both_bounds_may_be_others() -> None:
    signer = Signer([SECRET])
    headers = signed(signer)

    assert signer.verify(headers, b"{}", now_s=NOW + 3_000, max_age_s=3_000)
    assert signer.verify(headers, b"{}", now_s=NOW - 300, max_ahead_s=300)
    with pytest.raises(SignatureError, match="is 11 s old, at most 10 s"):
        signer.verify(headers, b"{}", now_s=NOW + 11, max_age_s=10)
    with pytest.raises(SignatureError, match="is 1 s ahead of the clock here, at most 0 s"):
        signer.verify(headers, b"{}", now_s=NOW - 1, max_ahead_s=0)


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

    with pytest.raises(SignatureError, match="nan s old"):
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


@pytest.mark.parametrize("secrets", [[], (), SECRET, KEY])
def test_secrets_are_a_list_of_at_least_one(secrets: Any) -> None:
    with pytest.raises(SettingsError, match=r"a list with at least one|secrets=\[secret\], or secrets=text"):
        Signer(secrets)


def test_nothing_shows_the_secret() -> None:
    signer = Signer([SECRET, OTHER])
    shown = f"{signer!r} {signer} {vars(signer)}"

    assert repr(signer) == "Signer(2 secrets)"
    assert SECRET[6:20] not in shown and repr(KEY)[2:20] not in shown


def test_of_several_the_wrong_one_is_named() -> None:
    with pytest.raises(SettingsError, match=r"^secret 2 of 3 has 5 bytes"):
        Signer([SECRET, "short", OTHER])


COMPARED = re.compile(r"digest|signature|mac\b|secret|token|lease_of", re.IGNORECASE)


def test_signatures_are_compared_in_a_time_that_tells_nothing() -> None:
    """`==` ends at the first byte that differs, so it tells how far a forged one is right."""
    tree = ast.parse(Path(signing.__file__).read_text("utf-8"))
    compared = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(how, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) for how in node.ops)
    ]
    called = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]

    assert [text for text in compared if COMPARED.search(text)] == []
    assert called.count("hmac.compare_digest") == 1


@pytest.mark.parametrize("secret", [SECRET, OTHER, "whsec_" + "B" * 32])
def test_all_secrets_are_compared_whichever_fits(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bool] = []

    def noted(one: bytes, other: bytes) -> bool:
        compared.append(one == other)
        return compared[-1]

    headers = signed(Signer([secret]))
    monkeypatch.setattr("hmac.compare_digest", noted)
    assert Signer([SECRET, OTHER, "whsec_" + "B" * 32]).verify(headers, b"{}", now_s=NOW)

    assert sorted(compared) == [False, False, True]
