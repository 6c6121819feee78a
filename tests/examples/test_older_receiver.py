"""Behind thirty lines a receiver of the older system takes our callbacks; without them it answers 403 to each."""

from __future__ import annotations

import shutil
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from hmac import digest
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.cli.processes import tocsin_serve
from tests.examples.example_process import DEADLINE_S, Program, attempts, running
from tocsin.cli.keys import new_secret
from tocsin.dispatch.signing import Signer

PATH: Final = "/_lunora/scheduler/dispatch"
OLDER: Final = "the secret of the older system"


@pytest.fixture
def secret() -> str:
    return new_secret()


@contextmanager
def older_app(folder: Path, secrets: str = "") -> Iterator[tuple[Program, str]]:
    shutil.copy(Path(__file__).parent / "older_app.mjs", folder)
    with running(["node", "older_app.mjs"], cwd=folder, LUNORA_SCHEDULER_SECRET=OLDER, TOCSIN_SECRETS=secrets) as app:
        yield app, f"http://127.0.0.1:{app.line_with('port ').split()[-1]}"


def ended(server: str, job_id: str, times: int = 1) -> list[tuple[str, int]]:
    """As soon as there are so many attempts."""
    for _ in range(int(DEADLINE_S / 0.01)):
        if len(found := attempts(server, job_id)) >= times:
            return [(attempt["outcome"], attempt["status"]) for attempt in found]
        time.sleep(0.01)
    raise AssertionError(f"{times} attempts of {job_id} have not ended within {DEADLINE_S} s")


def schedule(server: str, id: str, path: str, **more: Any) -> None:
    """As the older system's client does it."""
    body = {
        "id": id, "functionPath": path, "args": {"n": 1, "ü": [1.5]}, "instanceName": "default",
        "scheduledFor": int(time.time() * 1000), **more,
    }  # fmt: skip
    httpx.post(f"{server}/schedule", json=body, trust_env=False).raise_for_status()


@pytest.mark.parametrize("with_example", [False, True])
def test_an_older_receiver_takes_callbacks_behind_the_example_only(
    folder: Path, tmp_path: Path, secret: str, with_example: bool
) -> None:
    secrets = f"{new_secret()},{secret}" if with_example else ""
    with (
        older_app(folder, secrets) as (app, origin),
        tocsin_serve("--origin-url", origin, "--callback-path", PATH, cwd=tmp_path, TOCSIN_SECRETS=secret) as host,
    ):
        server = host.url()
        for path in ("mail:send", "busy", "fails"):
            schedule(server, path.partition(":")[0], path, retry={"baseMs": 0, "maxAttempts": 1, "maxMs": 0})
        if not with_example:
            assert [ended(server, id, 2) for id in ("mail", "busy", "fails")] == [[("failed", 403)] * 2] * 3
            return
        assert app.line_with("ran ") == 'ran mail:send of default with {"n":1,"ü":[1.5]}'
        assert ended(server, "mail") == [("done", 200)]
        assert ended(server, "busy") == [("declined", 409)]
        assert ended(server, "fails", 2) == [("failed", 500)] * 2


def test_behind_the_example_nothing_is_taken_that_is_not_signed(folder: Path, secret: str) -> None:
    body = b'{"id":"a","functionPath":"p","args":{},"instanceName":"default"}'
    now = int(time.time())

    def ours(key: str, stamp: int) -> dict[str, str]:
        signature = Signer([key]).sign("a:1", stamp, body)
        return {"webhook-id": "a:1", "webhook-timestamp": str(stamp), "webhook-signature": signature}

    theirs = urlsafe_b64encode(digest(OLDER.encode(), body, sha256)).decode().rstrip("=")
    with older_app(folder, secret) as (_, origin), httpx.Client(trust_env=False, timeout=DEADLINE_S) as http:
        answers = [
            http.post(f"{origin}{PATH}", content=body, headers=headers).status_code
            for headers in (
                ours(secret, now), ours(new_secret(), now), ours(secret, now - 900), ours(secret, now + 100),
                {}, {"x-lunora-scheduler-signature": theirs}, {"x-lunora-scheduler-signature": theirs[:-1] + "x"},
            )
        ]  # fmt: skip

    assert answers == [200, 401, 401, 401, 403, 200, 403]
