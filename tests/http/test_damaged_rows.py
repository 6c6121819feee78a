"""Damaged bytes in the store come out as JSON: what they belong to says so, and everything around it is whole."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.http.http_client import DUE, open_http_client, refused
from tocsin import RemoteScheduler
from tocsin.actors.scheduler.model.rows import IdemRow, decode, encode
from tocsin.errors import StoreCorrupt

pytestmark = pytest.mark.anyio

BROKEN = b'{"n": 2x}'
FAMILIES = {b"job/", b"result/", b"hist/", b"idem/"}


def damage(store: Path, prefix: bytes, old: bytes, new: bytes) -> int:
    """Bytes of the file change while its host runs; in how many rows."""
    with sqlite3.connect(store) as db:
        rows = db.execute("SELECT actor, key, value FROM kv").fetchall()
        hit = [(a, k, v) for a, k, v in rows if k.startswith(prefix) and old in v]
        for actor, key, value in hit:
            assert len(old) == len(new)
            db.execute("UPDATE kv SET value = ? WHERE actor = ? AND key = ?", (value.replace(old, new), actor, key))
    db.close()
    return len(hit)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


async def test_every_list_stays_json_and_shows_which_job_is_damaged(store: Path) -> None:
    async with open_http_client(f"sqlite:///{store}") as http_client:
        for n in range(3):
            await http_client.schedule(id=f"j{n}", args={"n": 20 + n}, queue="q", scheduledFor=DUE)
        assert damage(store, b"job/j1", b'{"n":21}', b'{"n":2x}') == 1
        for path in ("/list?order=id", "/list?order=due"):
            records = (await http_client.get(path)).json()["records"]
            assert [(one.get("args"), one.get("argsDamaged")) for one in records] == [
                ({"n": 20}, None),
                (None, True),
                ({"n": 22}, None),
            ]
        assert (await http_client.get("/get?id=j1")).json()["record"]["argsDamaged"] is True
        assert "args" not in (await http_client.get("/get?id=j1")).json()["record"]


async def test_a_claim_gets_the_neighbours_and_the_damaged_job_is_a_dead_letter(store: Path) -> None:
    async with open_http_client(f"sqlite:///{store}") as http_client:
        for n in range(3):
            await http_client.schedule(id=f"j{n}", args={"n": 20 + n}, queue="q", delayMs=0)
        assert damage(store, b"job/j1", b'{"n":21}', b'{"n":2x}') == 1
        await http_client.host.runtime.evict()  # the first jobs are in memory as well
        claimed = (await http_client.post("/queues/q/claim", {"max": 10, "waitMs": 0})).json()["jobs"]
        assert [one["args"] for one in claimed] == [{"n": 20}, {"n": 22}]
        [letter] = (await http_client.get("/dead")).json()["records"]
        assert (letter["id"], letter["reason"], letter["argsDamaged"]) == ("j1", "damaged", True)
        assert "no JSON" in letter["lastError"]["message"]
        [end] = (await http_client.get("/history?id=j1")).json()["attempts"]
        assert end["outcome"] == "damaged"


async def test_a_damaged_result_is_left_out_over_http_and_raises_in_python(store: Path) -> None:
    async with open_http_client(f"sqlite:///{store}") as http_client:
        await http_client.schedule(id="a", queue="q", delayMs=0, keepResultMs=60_000)
        [one] = (await http_client.post("/queues/q/claim", {"waitMs": 0})).json()["jobs"]
        await http_client.post("/complete", {"id": "a", "lease": one["lease"], "result": {"n": 21}})
        assert damage(store, b"result/", b'{"n":21}', b'{"n":2x}') == 1
        assert damage(store, b"hist/", b'{"n":21}', b'{"n":2x}') == 1
        outcome = (await http_client.get("/result?id=a")).json()
        assert (outcome["state"], outcome["resultDamaged"], "result" in outcome) == ("done", True, False)
        [end] = (await http_client.get("/history?id=a")).json()["attempts"]
        assert (end["resultDamaged"], "result" in end) == (True, False)
        async with RemoteScheduler("http://localhost", transport=http_client.client._transport) as remote:
            with pytest.raises(StoreCorrupt, match="job 'a'"):
                await remote.result("a")


@pytest.mark.parametrize("batch", [False, True])
async def test_a_damaged_answer_of_an_idempotency_key_is_refused_and_does_nothing_again(
    store: Path, batch: bool
) -> None:
    key = {"idempotency-key": "k"}
    job: dict[str, Any] = {"functionPath": "p", "scheduledFor": DUE}
    async with open_http_client(f"sqlite:///{store}") as http_client:
        route, body = ("/schedule/batch", {"jobs": [job] * 200}) if batch else ("/schedule", job)
        assert (await http_client.post(route, body, headers=key)).status_code == 200
        with sqlite3.connect(store) as db:
            [(name, value)] = db.execute("SELECT key, value FROM kv WHERE key >= x'6964656d2f' AND key < x'6964656d30'")
            row = decode(IdemRow, name, value)
            broken = row.answer[:-20] if batch else row.answer[:-1] + b"x"
            db.execute(
                "UPDATE kv SET value = ? WHERE key = ?", (encode(msgspec.structs.replace(row, answer=broken)), name)
            )
        db.close()
        jobs = (await http_client.get("/status")).json()["backlog"]
        refused(await http_client.post(route, body, headers=key), 422, "IDEMPOTENCY_KEY_REUSED", "damaged", "new key")
        assert (await http_client.get("/status")).json()["backlog"] == jobs
        if batch:
            with pytest.raises(zlib.error):
                zlib.decompress(broken)
