"""The receiver in Node, with nothing but the Standard Webhooks library of that world."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from tests.cli.processes import tocsin_serve
from tests.examples.example_process import DEADLINE_S, attempts, running
from tocsin.cli.keys import new_secret
from tocsin.dispatch.signing import Signer


def test_it_verifies_dedups_and_answers(folder: Path, tmp_path: Path) -> None:
    old, new = new_secret(), new_secret()
    with running(["node", "receiver.mjs"], cwd=folder, PORT="0", TOCSIN_SECRETS=f"{old},{new}") as receiver:
        origin = f"http://127.0.0.1:{receiver.line_with('port ').split()[-1]}"
        with tocsin_serve("--origin-url", origin, cwd=tmp_path, TOCSIN_SECRETS=new) as host:
            server = host.url()
            with httpx.Client(trust_env=False, timeout=DEADLINE_S) as http:
                for name, path in (("known", "invoices:send"), ("unknown", "invoices:lose")):
                    job = {"id": name, "functionPath": path, "args": {"n": 1, "ü": [1.5]}, "delayMs": 0}
                    http.post(f"{server}/schedule", json=job).raise_for_status()
                assert receiver.line_with("attempt 1 of known") == 'attempt 1 of known: {"n":1,"ü":[1.5]}'
                too_long = http.post(origin, content=b"x" * (1024 * 1024 + 1))
                forged = http.post(origin, content=b"{}", headers={"webhook-id": "known:1"})
                other = http.get(origin)
                replies = [
                    http.post(origin, content=body, headers=headers)
                    for body, headers in (signed(new, 0), signed(new, 0), signed(new, 65), signed(new, 50))
                ]
                ended = [outcomes(server, name) for name in ("known", "unknown")]

        assert (too_long.status_code, forged.status_code, other.status_code) == (413, 401, 405)
        assert [(reply.status_code, reply.content) for reply in replies] == [
            (200, b'{"sent":{"n":2}}'), (200, b'{"sent":{"n":2}}'), (401, b""), (200, b'{"sent":{"n":2}}')
        ]  # fmt: skip
        assert ended == [[("done", 200)], [("failed", 404)]]


def signed(secret: str, ahead_s: int) -> tuple[bytes, dict[str, str]]:
    """One and the same job, from a scheduler whose clock is ahead."""
    body, stamp = b'{"id":"two","functionPath":"invoices:send","args":{"n":2},"attempt":1}', int(time.time()) + ahead_s
    headers = {"webhook-id": "two:1", "webhook-timestamp": str(stamp)}
    return body, {**headers, "webhook-signature": Signer([secret]).sign("two:1", stamp, body)}


def outcomes(server: str, job_id: str) -> list[tuple[str, int]]:
    """As soon as there are any: the answer is on its way."""
    for _ in range(int(DEADLINE_S / 0.01)):
        if found := attempts(server, job_id):
            return [(attempt["outcome"], attempt["status"]) for attempt in found]
        time.sleep(0.01)
    raise AssertionError(f"no attempt of {job_id} ended within {DEADLINE_S} s")
