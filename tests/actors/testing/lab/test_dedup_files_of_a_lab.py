"""What an app's `SQLiteDedup` knows of real deliveries is not touched in a lab, which is at another time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from time import time_ns
from typing import Any, Literal

import pytest

from tocsin import Receiver, SQLiteDedup
from tocsin.dispatch.receiver.dedup import Claim, Found
from tocsin.testing import lab

pytestmark = pytest.mark.anyio
START = datetime(2047, 1, 1, tzinfo=UTC)
SECRETS = ["whsec_" + "c2VjcmV0IG9mIGF0IGxlYXN0IDI0IGJ5dGVz"]


def receiving(dedup: SQLiteDedup) -> tuple[Receiver, list[Any]]:
    receiver, got = Receiver(SECRETS, dedup=dedup), list[Any]()
    receiver.register({"a:b": got.append})
    return receiver, got


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize("rounds", [1, 2])
async def test_what_the_app_knows_of_real_deliveries_outlives_labs_in_the_future(tmp_path: Path, rounds: int) -> None:
    dedup, now = SQLiteDedup(tmp_path / "received.db"), time_ns() // 1_000_000
    real = Claim("job:1", "1.1.a", now, now + 60_000)
    assert await dedup.claim(real, now_ms=now) is Found.NEW
    assert await dedup.finish("job:1", "1.1.a", now_ms=now)
    receiver, got = receiving(dedup)

    for n in range(rounds):
        async with lab(receiver, start=START, secrets=SECRETS) as t:
            await t.scheduler().run_after("1d", "a:b", n)
            await t.advance("2d")
            assert dedup.path.parent != tmp_path
    assert (got, dedup.path) == (list(range(rounds)), tmp_path / "received.db")
    receiver.open()
    assert await dedup.claim(real, now_ms=now) is Found.DONE
    await dedup.aclose()


async def test_a_crash_keeps_the_file_of_the_lab_and_nothing_is_left_where_the_app_is(tmp_path: Path) -> None:
    async with lab(lambda: receiving(SQLiteDedup(tmp_path / "received.db"))[0], start=START, secrets=SECRETS) as t:
        await t.scheduler().run_after(0, "a:b", id="once")
        await t.run_until_idle()
        await t.crash()
        [first] = t.deliveries
        dedup = SQLiteDedup(tmp_path / "received.db")
        claim = Claim(first.webhook_id, "9.9.z", first.at, first.at + 60_000)
        assert await dedup.claim(claim, now_ms=t.now_ms) is Found.DONE
        await dedup.aclose()
    assert not left_in(tmp_path)


@pytest.mark.parametrize("store", ["memory", "sqlite", "own"])
async def test_only_the_apps_own_stores_are_where_the_app_says(
    tmp_path: Path, store: Literal["memory", "sqlite", "own"]
) -> None:
    receiver, got = receiving(SQLiteDedup(tmp_path / "received.db"))
    async with lab(receiver, start=START, store=store, secrets=SECRETS) as t:
        await t.scheduler().run_after(0, "a:b", 1)
        await t.run_until_idle()
    assert (got, (tmp_path / "received.db").exists()) == ([1], store == "own")
    await receiver.aclose()
