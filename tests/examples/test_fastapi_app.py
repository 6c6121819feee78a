"""The example app, and the host that calls it back, each in a process of its own."""

from __future__ import annotations

import json
import socket
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx

from tests.cli.processes import tocsin_serve
from tests.examples.example_process import DEADLINE_S, EXAMPLES, attempts, running
from tocsin.cli.keys import new_secret
from tocsin.dispatch.signing import Signer


def duplicate_of(webhook_id: str, secret: str, args: object) -> tuple[dict[str, str], bytes]:
    """The next attempt of a job, as its host would send it if the answer to the first had been lost."""
    body = json.dumps(
        {
            "id": webhook_id.rpartition(":")[0],
            "functionPath": "invoices:pay",
            "args": args,
            "attempt": 2,
            "scheduledFor": int(time.time() * 1000),
            "lease": "99.1.abcdef",
            "instanceName": "default",
        }
    ).encode()
    stamp = int(time.time())
    signature = Signer([secret]).sign(webhook_id, stamp, body)
    return {"webhook-id": webhook_id, "webhook-timestamp": str(stamp), "webhook-signature": signature}, body


def test_it_schedules_is_called_back_once_and_completes_later(tmp_path: Path) -> None:
    secret = new_secret()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        uvicorn = [sys.executable, "-m", "uvicorn", "fastapi_app:app", "--app-dir", str(EXAMPLES)]
        with tocsin_serve("--origin-url", origin, cwd=tmp_path, TOCSIN_SECRETS=secret) as host:
            server = host.url()
            with running(
                [*uvicorn, "--fd", str(listener.fileno())],
                cwd=tmp_path, pass_fds=[listener.fileno()], TOCSIN_URL=server,
                TOCSIN_SECRETS=f"{new_secret()}, {secret}",  # as while keys rotate
            ) as app:  # fmt: skip
                http = httpx.Client(base_url=origin, trust_env=False, timeout=DEADLINE_S)
                scheduled = http.post("/invoices/42/pay", params={"amount": "19.90"})
                assert scheduled.json() == {"id": "pay-42"}

                app.line_with("paid invoice 42: 19.90")  # a Decimal again, or it could not be written so
                ended_in_time(server)

                with closing(sqlite3.connect(tmp_path / "received.db")) as db:
                    [(webhook_id,)] = db.execute("SELECT webhook_id FROM tocsin_dedup_1")
                headers, body = duplicate_of(webhook_id, secret, {"number": 42})
                again = http.post("/_tocsin/callback", headers=headers, content=body)
                assert (again.status_code, again.json()) == (200, {"paid": "19.90"}), "what it came to, once more"

                # The id is free again, and an invoice is paid once all the same.
                assert http.post("/invoices/42/pay", params={"amount": "19.90"}).json() == {"id": "pay-42"}
                app.line_with("invoice 42 was paid before")

                http.close()
                printed = app.stop()
    assert len([line for line in printed if "paid invoice" in line]) == 1
    assert not [line for line in printed if "Traceback" in line]


def ended_in_time(server: str) -> None:
    """The completion comes right after the line that was waited for."""
    end = time.monotonic() + DEADLINE_S
    while not (found := attempts(server, "pay-42")):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert [(attempt["outcome"], attempt["result"]) for attempt in found] == [("done", {"paid": "19.90"})]
    assert httpx.get(f"{server}/get", params={"id": "pay-42"}, trust_env=False).json() == {}
