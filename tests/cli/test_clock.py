"""`tocsin clock` against a real server, also one that is killed in the middle of an advance."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tocsin import SyncClient
from tocsin.errors import ConflictError

from .conftest import Canned, Run
from .processes import tocsin, tocsin_serve

START_MS = 1_806_537_600_000


def test_an_advance_goes_on_over_a_killed_server_and_sends_each_slot(tmp_path: Path, canned: Canned) -> None:
    """It is killed while time waits for a worker, so no attempt is under way."""
    canned.answer({})
    settings = {"TOCSIN_STORE": f"sqlite:///{tmp_path}/jobs.db", "TOCSIN_INSTANCE": "trial"}
    callbacks = {"TOCSIN_ORIGIN_URL": canned.url, "TOCSIN_INSECURE": "1"}
    with tocsin_serve(cwd=tmp_path, **settings, **callbacks) as server, SyncClient(url := server.url()) as client:
        jobs = client.scheduler("trial")
        made = tocsin("clock", "new", "2027-04-01T00:00:00Z", cwd=tmp_path, TOCSIN_URL=url, **settings)
        assert made.stdout.strip() == "now  2027-04-01T00:00:00.000Z"
        jobs.schedules.put("hourly", "work:slot", cron="0 * * * *")
        jobs.run_after("12h", "work:run", queue="mail")
        jobs.clock.start("1d")
        wait_until(lambda: "queue mail wait for a worker" in str(jobs.clock.get()))
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    assert len(canned.requests) == 12
    with tocsin_serve(cwd=tmp_path, **settings, **callbacks) as server, SyncClient(url := server.url()) as client:
        jobs = client.scheduler("trial")
        with pytest.raises(ConflictError, match="goes on"):
            jobs.clock.advance("1h")
        [job] = jobs.claim("mail", wait=0)
        jobs.complete(job.id, job.lease)
        assert jobs.clock.wait("30s").now == START_MS + 24 * 3_600_000
        shown = tocsin("status", cwd=tmp_path, TOCSIN_URL=url, **settings)
        assert "clock      2027-04-02T00:00:00.000Z, frozen" in shown.stdout
    slots = [one.body["schedule"]["slot"] for one in canned.requests]
    assert slots == [START_MS + n * 3_600_000 for n in range(1, 25)]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("new yesterday", "INSTANT must be like"),
        ("new 2027-04-01", "INSTANT needs a time of day"),
        ("advance", "give SPAN or --to"),
        ("advance 30d --to 2027-04-01T00:00:00Z", "give SPAN or --to"),
        ("advance soon", "SPAN must look like"),
    ],
)
def test_what_cannot_be_asked_is_wrong_usage(run: Run, canned: Canned, words: str, why: str) -> None:
    result = run("clock", *words.split())
    assert result.exit_code == 2, result.output
    assert why in " ".join(result.stderr.split()) and not canned.requests


def test_an_advance_is_waited_for_and_says_what_time_waits_for(run: Run, canned: Canned) -> None:
    on = {"now": 1_806_537_600_000, "advancing": True, "target": 1_806_541_200_000}
    canned.answer(on)
    canned.answer({"clock": {**on, "waitsFor": "1 attempt is under way"}})
    canned.answer({"clock": {**on, "waitsFor": "1 attempt is under way"}})
    canned.answer({"clock": {"now": 1_806_541_200_000, "advancing": False}})
    result = run("clock", "advance", "1h")
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == "now  2027-04-01T01:00:00.000Z"
    assert result.stderr.count("1 attempt is under way") == 1
    assert [one.path.partition("?")[0] for one in canned.requests] == ["/clock/advance", *["/clock"] * 3]
