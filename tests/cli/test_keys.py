"""`tocsin keys sign` and `verify`: what the host's receivers would say of a body and its headers."""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from tocsin import Receiver
from tocsin.dispatch.signing import Signer

from .conftest import Run

OLD, NEW, OTHER = ("whsec_" + b64encode(letter * 32).decode() for letter in (b"o", b"n", b"x"))
BODY = b'{"n": 1.0,  "text": "\xc3\xa9"}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "body.json").write_bytes(BODY)
    return tmp_path


def headers_of(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.splitlines())


def env(*secrets: str) -> dict[str, str]:
    return {"TOCSIN_SECRETS": ",".join(secrets)}


# ---- sign ----------------------------------------------------------------------------------------


def test_every_secret_signs_and_the_standards_own_library_verifies(run: Run, folder: Path) -> None:
    done = run("keys", "sign", "body.json", env=env(NEW, OLD))
    assert (done.exit_code, done.stderr) == (0, "")
    headers = headers_of(done.stdout)
    assert list(headers) == ["webhook-id", "webhook-timestamp", "webhook-signature"]
    assert headers["webhook-id"].startswith("msg_")
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 30
    for secret in (OLD, NEW):
        Webhook(secret).verify(BODY, headers)


@pytest.mark.anyio
async def test_a_receiver_accepts_what_the_page_on_access_signs(run: Run, folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "access.md").read_text("utf-8")
    [body] = re.findall(r"^\$ echo '(.*)' > body\.json$", page, re.MULTILINE)
    [words] = re.findall(r"^\$ tocsin (keys sign .*) > headers$", page, re.MULTILINE)
    (folder / "body.json").write_bytes(f"{body}\n".encode())
    headers = headers_of(run(*words.split(), env=env(NEW)).stdout)

    receiver = Receiver([NEW])
    seen: list[object] = []

    def send(args: object) -> None:
        seen.append(args)

    receiver.register({"invoices:send": send})
    answer = await receiver.handle(headers, f"{body}\n".encode())
    await receiver.aclose()

    assert (answer.status, seen) == (200, [{"amount": 5}])


def test_id_and_timestamp_may_be_chosen_and_the_body_come_on_stdin(run: Run, folder: Path) -> None:
    words = ("keys", "sign", "--id", "job:1-7", "--timestamp", "1800000000")
    done = run(*words, input=BODY, env=env(NEW))
    assert headers_of(done.stdout) == {
        "webhook-id": "job:1-7",
        "webhook-timestamp": "1800000000",
        "webhook-signature": Signer([NEW]).sign("job:1-7", 1_800_000_000, BODY),
    }
    assert json.loads(run(*words, "--json", "body.json", env=env(NEW)).stdout) == headers_of(done.stdout)


def test_secrets_come_from_where_a_server_takes_them(run: Run, folder: Path) -> None:
    (folder / "secrets").write_text(f"{OLD}\n")
    (folder / "tocsin.toml").write_text(f'secrets = ["{OTHER}"]')
    signed = {
        "file": run("keys", "sign", "--id", "i", "--timestamp", "1", "--secrets-file", "secrets", "body.json"),
        "environment": run("keys", "sign", "--id", "i", "--timestamp", "1", "body.json", env=env(NEW)),
        "config": run("keys", "sign", "--id", "i", "--timestamp", "1", "body.json"),
    }
    for source, secret in {"file": OLD, "environment": NEW, "config": OTHER}.items():
        assert headers_of(signed[source].stdout)["webhook-signature"] == Signer([secret]).sign("i", 1, BODY)


@pytest.mark.parametrize(
    ("words", "environ", "said"),
    [
        ((), {}, "there are no secrets"),
        ((), env("hush-hush"), "TOCSIN_SECRETS: a secret has 9 bytes"),
        (("--secrets-file", "absent"), {}, "absent cannot be read"),
        (("--id", "a.b"), env(NEW), "without spaces and dots"),
        (("--id", "a b"), env(NEW), "without spaces and dots"),
        (("--id", "a\r\nb: c"), env(NEW), "without spaces and dots"),
        (("--id", ""), env(NEW), "without spaces and dots"),
        (("--timestamp", "-1"), env(NEW), "--timestamp"),
        (("absent.json",), env(NEW), "absent.json"),
        (("--secret", NEW), env(OLD), "No such option"),
    ],
)
def test_what_cannot_be_signed_is_wrong_usage(
    run: Run, folder: Path, words: tuple[str, ...], environ: dict[str, str], said: str
) -> None:
    done = run("keys", "sign", *words, input=BODY, env=environ)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "hush" not in done.stderr


# ---- verify --------------------------------------------------------------------------------------


def signed(folder: Path, *secrets: str, age_s: int = 0, message_id: str = "job:1-7") -> dict[str, str]:
    """Headers of the body, also in the file `headers`."""
    stamp = int(time.time()) - age_s
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": Signer(secrets).sign(message_id, stamp, BODY),
    }
    lines = ["POST /_tocsin/callback HTTP/1.1", "content-type: application/json"]
    lines += [f"{name.title()}: {value}" for name, value in headers.items()]
    (folder / "headers").write_text("\r\n".join(lines))
    return headers


@pytest.mark.parametrize(
    ("made", "known", "position"), [([OLD], [NEW, OLD], 2), ([NEW, OLD], [OLD], 1), ([NEW, OLD], [NEW, OLD], 1)]
)
def test_a_genuine_request_is_told_with_the_position_of_its_secret(
    run: Run, folder: Path, made: list[str], known: list[str], position: int
) -> None:
    signed(folder, *made)
    done = run("keys", "verify", "body.json", "--headers", "headers", env=env(*known))
    assert (done.exit_code, done.stdout) == (0, f"genuine: signed with secret {position} of {len(known)}\n")
    done = run("keys", "verify", "--json", "--headers", "headers", input=BODY, env=env(*known))
    assert json.loads(done.stdout) == {
        "genuine": True, "secret": position, "secrets": len(known), "id": "job:1-7",
    }  # fmt: skip


def test_headers_may_be_options(run: Run, folder: Path) -> None:
    given = [word for name, value in signed(folder, NEW).items() for word in ("-H", f"> {name}: {value}")]
    assert run("keys", "verify", *given, input=BODY, env=env(NEW)).exit_code == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"body": BODY + b" "}, "fits none of the active secrets"),
        ({"secrets": [OTHER]}, "fits none of the active secrets"),
        ({"age_s": 305}, "s old, at most 300 s are taken"),
        ({"age_s": -75}, "s ahead of the clock here, at most 60 s are taken"),
        ({"more": ["-H", "webhook-id: other"]}, "webhook-id is there more than once"),
        ({"headers": "webhook-id: a\nwebhook-timestamp: 1\n"}, "are needed"),
        ({"headers": "webhook-id: a\nwebhook-timestamp: soon\nwebhook-signature: v1,x"}, "not a number of seconds"),
    ],
)
def test_what_is_not_genuine_is_exit_1_with_the_reason(
    run: Run, folder: Path, change: dict[str, Any], said: str
) -> None:
    signed(folder, NEW, OLD, age_s=change.get("age_s", 0))
    if "headers" in change:
        (folder / "headers").write_text(change["headers"])
    words = ["keys", "verify", "--headers", "headers", *change.get("more", [])]
    body, secrets = change.get("body", BODY), env(*change.get("secrets", [NEW]))
    done = run(*words, input=body, env=secrets)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "not genuine" in done.stderr and said in done.stderr
    done = run(*words, "--json", input=body, env=secrets)
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert told["genuine"] is False and said in told["reason"]
    if "age_s" in change:
        assert run(*words, "--any-age", input=body, env=secrets).exit_code == 0


def test_no_headers_at_all_is_wrong_usage(run: Run, folder: Path) -> None:
    done = run("keys", "verify", "body.json", env=env(NEW))
    assert done.exit_code == 2
    assert "--headers FILE" in done.stderr


@pytest.mark.parametrize("words", ["keys sign", "keys verify"])
def test_help_fits_80_columns(run: Run, words: str) -> None:
    assert max(map(len, run(*words.split(), "--help").output.splitlines())) <= 80
