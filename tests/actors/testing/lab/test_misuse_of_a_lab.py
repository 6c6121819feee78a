"""What goes wrong in tests: forgotten awaits and closes, apps that fail, other event loops, real time around a lab."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import uvloop
from fastapi import FastAPI, Request, Response

from tests.actors.testing.lab.shop import SECRET, Shop
from tocsin import Retry
from tocsin.actors.testing.lab import loop_time
from tocsin.errors import SettingsError
from tocsin.testing import Stuck, lab

pytestmark = pytest.mark.anyio
START = datetime(2027, 1, 1, tzinfo=UTC)


async def test_a_check_that_nobody_awaited_is_an_error_at_the_end() -> None:
    with pytest.raises(AssertionError, match=r"not awaited, so they checked nothing: refute_scheduled at .*misuse"):
        async with lab() as t:
            t.refute_scheduled("a:b")


async def test_a_reading_that_nobody_awaited_is_neither_true_nor_false() -> None:
    async with lab() as t:
        with pytest.raises(TypeError, match=r"scheduled must be awaited: await t.scheduled\(...\)"):
            assert t.scheduled("a:b")
        with pytest.raises(TypeError, match=r"dead must be awaited"):
            assert t.dead() == []
        with pytest.raises(TypeError, match=r"scheduled must be awaited"):
            [*t.scheduled()]


async def test_an_assertion_shows_what_is_scheduled_instead() -> None:
    async with lab(start=START) as t:
        jobs = t.scheduler("tenant-a")
        with pytest.raises(AssertionError, match=r"^no job with path='a:b' is scheduled. At .*Z there is nothing.$"):
            await t.assert_scheduled("a:b")
        await jobs.run_after("5m", "a:c", {"n": 1}, id="one", pool="p")
        await jobs.schedules.put("daily", cron="0 8 * * *", path="a:b")
        with pytest.raises(AssertionError) as raised:
            await t.assert_scheduled("a:b", args={"n": 2}, after="5m")
        assert str(raised.value) == (
            "no job with path='a:b', args={'n': 2}, at=2027-01-01 00:05:00Z is scheduled. "
            "Schedule 'daily' makes one when it is due. At 2027-01-01 00:00:00Z there is:\n"
            "  a:c {'n': 1} pending, at 2027-01-01 00:05:00Z (in 5m), pool p (id one, scheduler tenant-a)\n"
            "  schedule daily: a:b {} active, next at 2027-01-01 08:00:00Z (in 8h), scheduler tenant-a"
        )
        with pytest.raises(AssertionError, match=r"^1 job with path='a:c' is scheduled, 2 expected. At"):
            await t.assert_scheduled("a:c", count=2)
        with pytest.raises(AssertionError, match=r"^1 job with pool='p' is scheduled. At"):
            await t.refute_scheduled(pool="p")
        await t.assert_scheduled("a:c", args=lambda args: args["n"] == 1, at=START + timedelta(minutes=5))
        with pytest.raises(Exception, match="unknown arg: a job is named by after, args, at, id, label, path"):
            await t.assert_scheduled("a:c", arg=1)


async def test_a_startup_that_fails_is_told_with_its_cause_and_leaves_nothing() -> None:
    before = asyncio.get_running_loop().time
    shop = Shop("mysql://nowhere")
    with pytest.raises(SettingsError, match="the store 'mysql://nowhere' is not known"):
        async with lab(shop.app):
            pass

    async def lifespan(app: FastAPI) -> Any:
        1 / 0  # noqa: B018
        yield

    with pytest.raises(SettingsError, match=r"the startup of the app failed: .*division by zero"):
        async with lab(FastAPI(lifespan=asynccontextmanager(lifespan)), secrets=[SECRET]):
            pass
    assert asyncio.get_running_loop().time == before


async def test_an_app_without_a_lifespan_is_served() -> None:
    """Such as Django's, which raises."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError(f"can only handle HTTP connections, not {scope['type']}.")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async with lab(app, secrets=[SECRET]) as t:
        await t.scheduler().run_after("1d", "a:b")
        await t.advance("1d")
        assert t.deliveries[0].ok


@pytest.mark.parametrize("app", [7, lambda: None, "shop:app"])
async def test_what_is_no_app_is_refused(app: Any) -> None:
    with pytest.raises(SettingsError, match="app must be an ASGI app, or a function that makes one, not"):
        async with lab(app):
            pass


async def test_a_lab_is_opened_once_and_used_while_it_is_open() -> None:
    t = lab()
    with pytest.raises(SettingsError, match="this lab is not open: async with lab"):
        await t.advance("1d")
    async with t:
        with pytest.raises(SettingsError, match="open already, or was: make another one"):
            async with t:
                pass


async def test_a_wait_that_cannot_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_time, "WATCHDOG_S", 0.02)
    async with lab() as t:
        with pytest.raises(Stuck, match="what was waited for has not ended after 60 virtual seconds"):
            await t.until(asyncio.Event().wait(), within="1m")
        with pytest.raises(ZeroDivisionError):
            await t.until(_divide())


async def _divide() -> float:
    await asyncio.sleep(1)
    return 1 / 0


async def test_a_test_that_waits_while_time_stands_still_goes_on_after_a_while_and_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_time, "WATCHDOG_S", 0.02)
    got: list[Any] = []
    async with lab({"a:b": got.append}) as t:
        id = await t.scheduler().run_after("5m", "a:b", keep_result="1h")
        with caplog.at_level(logging.ERROR, "tocsin.testing"):
            await t.scheduler().result(id)
    assert got == [{}]
    assert "time stands still: pass it, `await t.advance(...)`, or close the lab" in caplog.text


async def test_timers_from_before_a_lab_keep_to_real_time_and_those_left_by_it_go_on() -> None:
    loop = asyncio.get_running_loop()
    real = loop.time()
    rang: list[str] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            async with lab() as t:
                loop.call_later(3600.05, rang.append, "left")
                await t.advance("1h")
                assert not rang
                await t.client.aclose()
                await asyncio.Event().wait()  # what a hanging test does; its own bound ends it
    assert loop.time() - real < 5
    await asyncio.sleep(0.1)
    assert rang == ["left"]


async def test_a_test_that_fails_is_not_told_of_checks_that_it_did_not_come_to() -> None:
    with pytest.raises(ZeroDivisionError):
        async with lab({"a:b": lambda args: 1 / 0}) as t:
            t.assert_scheduled("a:b")
            await t.scheduler().run_after(0, "a:b", retry=Retry(max_retries=0))
            await t.run_until_idle()
            assert [job.last_status for job in await t.dead()] == [500]
            1 / 0  # noqa: B018


async def test_a_task_of_before_a_lab_keeps_to_real_time() -> None:
    """Such as a fixture of the session: over a virtual year it would run for hours."""
    rounds: list[float] = []

    async def poll() -> None:
        while True:
            await asyncio.sleep(0.01)
            rounds.append(loop.time())

    loop = asyncio.get_running_loop()
    polling = asyncio.create_task(poll())
    await asyncio.sleep(0)
    async with lab() as t:
        await t.advance("365d")
        assert len(rounds) < 100
        before = len(rounds)
        await asyncio.get_running_loop().run_in_executor(None, threading.Event().wait, 0.05)
        assert len(rounds) > before
    before = len(rounds)
    await asyncio.sleep(0.05)
    assert len(rounds) > before
    polling.cancel()


async def test_a_thread_that_is_there_for_as_long_as_the_app_does_not_stop_time_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_time, "THREADS_S", 0.05)
    ends = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        consuming = asyncio.create_task(asyncio.to_thread(ends.wait, 10))
        for _ in ("startup", "shutdown"):
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
        ends.set()
        await consuming

    async with lab(app, secrets=[SECRET]) as t:
        await t.scheduler().schedules.put("often", every="1h", path="a:b")
        await t.advance("30d")
        assert len(t.deliveries) == 720
    assert caplog.text.count("time goes on without them") == 1


async def test_tasks_of_the_test_sleep_in_virtual_time_and_the_client_keeps_its_cookies() -> None:
    app = FastAPI()

    @app.get("/")
    async def count(request: Request, response: Response) -> int:
        seen = int(request.cookies.get("seen", 0)) + 1
        response.set_cookie("seen", str(seen))
        return seen

    async with lab(app, secrets=[SECRET], start=START) as t, asyncio.TaskGroup() as group:
        for hours in (1, 2, 3):
            group.create_task(asyncio.sleep(3600 * hours))
        assert [(await t.client.get("/")).json() for _ in range(3)] == [1, 2, 3]
    assert t.now == START + timedelta(hours=3)


async def test_an_app_is_in_one_lab_at_a_time() -> None:
    shop = Shop()
    app = shop.app()
    async with lab(app) as t:
        with pytest.raises(SettingsError, match="this host is open already, in another lab or without one"):
            async with lab(app):
                pass
        await t.client.post("/carts/anna")
        await t.advance("2d")
    assert shop.did == [("remind", "anna")]


FORGOTTEN = """
import asyncio
from tocsin.testing import lab

async def main():
    t = lab({"a:b": lambda args: None})
    await t.__aenter__()
    await t.scheduler().run_after("1d", "a:b")
    await t.advance("2h")

asyncio.run(main())
print("ended")
asyncio.run(asyncio.sleep(0.01))
print("slept")
"""


def test_a_lab_that_is_never_closed_does_not_hold_the_process_or_other_loops() -> None:
    run = subprocess.run([sys.executable, "-c", FORGOTTEN], capture_output=True, text=True, timeout=60)

    assert (run.stdout, run.returncode) == ("ended\nslept\n", 0), run.stderr


def test_another_event_loop_than_asyncio_s_is_refused() -> None:
    async def main() -> None:
        async with lab():
            pass

    refused = pytest.raises(SettingsError, match="a lab needs one of asyncio's own event loops, not uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, refused:
        runner.run(main())
