"""Instants and durations as callers give them: each wrong one is refused by the name of its argument."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.model.rows import LARGEST_MS
from tocsin.dispatch import values
from tocsin.dispatch.durations import duration_ms
from tocsin.dispatch.instants import LARGEST_MS as OF_DISPATCH
from tocsin.dispatch.instants import instant_ms
from tocsin.dispatch.words import SPEAKS_JSON
from tocsin.dispatch.worker.specs import body_of
from tocsin.errors import InvalidInputError, TocsinError

NEW_YORK = ZoneInfo("America/New_York")


class Named(tzinfo):
    """Somebody's own."""

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None


class Moody(Named):
    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        raise RuntimeError("not today")


class Wide(Named):
    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return timedelta(days=3)


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("not today")


INSTANTS: dict[str, Any] = {
    "the last datetime, west of UTC": datetime.max.replace(tzinfo=NEW_YORK),
    "the last datetime, at a fixed offset": datetime.max.replace(tzinfo=timezone(-timedelta(hours=23))),
    "the first datetime, east of UTC": datetime.min.replace(tzinfo=ZoneInfo("Asia/Tokyo")),
    "the first datetime": datetime.min.replace(tzinfo=UTC),
    "naive": datetime(2027, 1, 1),
    "a zone that raises": datetime(2027, 1, 1, tzinfo=Moody()),
    "a zone that is days ahead": datetime(2027, 1, 1, tzinfo=Wide()),
    "seconds": 1_800_000_000,
    "huge": 10**5_000,
    "huge and negative": -(10**5_000),
    "beyond what is stored": 10**15,
    "a float": 1.8e12,
    "a bool": True,
    "a Decimal": Decimal("1800000000000"),
    "a text": "2027-01-01T00:00:00Z",
    "a date": datetime(2027, 1, 1).date(),
    "no number": float("nan"),
    "what cannot be shown": Unshowable(),
}
DURATIONS: dict[str, Any] = {
    "the longest timedelta": timedelta.max,
    "the shortest timedelta": timedelta.min,
    "huge": 10**5_000,
    "huge and negative": -(10**5_000),
    "more days than a number holds": "999999999999d",
    "more digits than a float holds": "9" * 400 + "s",
    "infinite": float("inf"),
    "no number": float("nan"),
    "a large float": 1e300,
    "a bool": True,
    "a Decimal": Decimal(5),
    "a text without unit": "5",
    "a long text": "x" * 10_000,
    "what cannot be shown": Unshowable(),
}


@pytest.mark.parametrize("what", INSTANTS)
def test_an_instant_that_cannot_be_is_refused_by_its_name(what: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^thus ") as refused:
        instant_ms(INSTANTS[what], "thus")
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("what", DURATIONS)
def test_a_duration_that_cannot_be_is_refused_by_its_name(what: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^thus ") as refused:
        duration_ms(DURATIONS[what], "thus")
    assert len(refused.value.message) < 300


def test_the_edges_that_can_be() -> None:
    assert instant_ms(datetime.max.replace(tzinfo=UTC), "at") == 253_402_300_800_000
    assert instant_ms(datetime.max.replace(tzinfo=ZoneInfo("Asia/Tokyo")), "at") == 253_402_268_400_000
    assert instant_ms(OF_DISPATCH, "at") == OF_DISPATCH == LARGEST_MS
    assert duration_ms(OF_DISPATCH // 1000, "delay") == OF_DISPATCH // 1000 * 1000


def test_fractions_round_up_and_the_second_pass_of_an_hour_is_told_apart() -> None:
    first = datetime(2026, 11, 1, 1, 30, 0, 1, tzinfo=NEW_YORK)
    assert instant_ms(first, "at") == 1_793_511_000_001
    assert instant_ms(first.replace(fold=1), "at") - instant_ms(first, "at") == 3_600_000


async def _batch(sim: SimulatedHost, name: str, value: Any) -> None:
    from tocsin import Job

    options = {"expires_at": value} if name == "expires_at" else {}
    parts = {} if name == "expires_at" else {name: value}
    [answer] = await sim.jobs.submit_many([Job(path="w:r", options=options, **(parts or {"after": 0}))])
    if isinstance(answer, TocsinError):
        raise answer


PLACES: dict[str, tuple[str, Any]] = {
    "run_at": ("at", lambda sim, value: sim.jobs.run_at(value, "w:r")),
    "expires_at": ("expires_at", lambda sim, value: sim.jobs.run_after(0, "w:r", expires_at=value)),
    "reschedule": ("at", lambda sim, value: sim.jobs.reschedule("x", at=value)),
    "dead": ("since", lambda sim, value: sim.jobs.dead(since=value)),
    "dead_retry_all": ("since", lambda sim, value: sim.jobs.dead_retry_all(since=value)),
    "schedules.put": ("at", lambda sim, value: sim.jobs.schedules.put("x", "w:r", at=value)),
    "register": ("at", lambda sim, value: sim.jobs.schedules.register("o", [("x", {"path": "w:r", "at": value})])),
    "preview": ("start", lambda sim, value: sim.jobs.schedules.preview("* * * * *", start=value)),
    "submit_many": ("at", lambda sim, value: _batch(sim, "at", value)),
    "submit_many, expiring": ("expires_at", lambda sim, value: _batch(sim, "expires_at", value)),
}
DELAYS: dict[str, tuple[str, Any]] = {
    "run_after": ("delay", lambda sim, value: sim.jobs.run_after(value, "w:r")),
    "reschedule": ("after", lambda sim, value: sim.jobs.reschedule("x", after=value)),
    "every": ("every", lambda sim, value: sim.jobs.schedules.put("x", "w:r", every=value)),
    "grace": ("grace", lambda sim, value: sim.jobs.schedules.put("x", "w:r", every=60, grace=value)),
    "jitter": ("jitter", lambda sim, value: sim.jobs.schedules.put("x", "w:r", every=60, jitter=value)),
    "expires_after": (
        "expires",
        lambda sim, value: sim.jobs.schedules.put("x", "w:r", every=9, expires_after=value),
    ),
    "claim": ("wait", lambda sim, value: sim.jobs.claim("q", wait=value)),
    "keep_result": ("keep_result", lambda sim, value: sim.jobs.run_after(0, "w:r", keep_result=value)),
    "submit_many": ("after", lambda sim, value: _batch(sim, "after", value)),
}


@on_simulated_host()
async def test_every_place_that_takes_an_instant_names_its_argument(sim: SimulatedHost) -> None:
    for place, (name, call) in PLACES.items():
        for what, value in INSTANTS.items():
            with pytest.raises(InvalidInputError, match=name) as refused:
                await call(sim, value)
            assert len(refused.value.message) < 400, (place, what)
    assert (await sim.jobs.status()).backlog == 0


@on_simulated_host()
async def test_every_place_that_takes_a_duration_names_its_argument(sim: SimulatedHost) -> None:
    for place, (name, call) in DELAYS.items():
        for what, value in DURATIONS.items():
            with pytest.raises(InvalidInputError, match=name) as refused:
                await call(sim, value)
            assert len(refused.value.message) < 400, (place, what)
    assert (await sim.jobs.status()).backlog == 0


@pytest.mark.parametrize("what", INSTANTS)
def test_what_is_sent_to_a_server_is_refused_before(what: str) -> None:
    for place, job in (
        ("at", {"at": INSTANTS[what]}),
        ("expires_at", {"after": 0, "options": {"expires_at": INSTANTS[what]}}),
    ):
        with pytest.raises(InvalidInputError, match=rf"^jobs\[0\].{place} "):
            body_of({"path": "w:r", **job}, "jobs[0].")


@pytest.mark.parametrize("what", DURATIONS)
def test_so_is_a_delay(what: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^jobs\[0\].after "):
        body_of({"path": "w:r", "after": DURATIONS[what]}, "jobs[0].")


def test_a_datetime_in_args_whose_zone_raises_is_refused_by_its_place() -> None:
    with pytest.raises(InvalidInputError, match=r"args.when has a time zone that cannot tell its offset: Moody"):
        values.encode({"when": datetime(2027, 1, 1, tzinfo=Moody())}, "args")
    assert values.decode(values.encode([datetime.max.replace(tzinfo=UTC)], "args"), "args") == [
        datetime.max.replace(tzinfo=UTC)
    ]


@pytest.mark.parametrize("value", ["2027-01-01T09:00:00Z", 1.5, None, True, object])
def test_what_is_no_instant_is_told_of_both_that_are(value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^at must be an aware datetime .* or epoch milliseconds, not "):
        instant_ms(value, "at")


def test_a_text_is_told_how_it_becomes_an_instant() -> None:
    with pytest.raises(InvalidInputError, match=r"datetime\.fromisoformat\(\.\.\.\) reads a text"):
        instant_ms("2027-01-01T09:00:00Z", "at")


def test_who_speaks_json_is_not_told_of_datetimes() -> None:
    token = SPEAKS_JSON.set(True)
    try:
        with pytest.raises(InvalidInputError, match=r"^at must be an integer \(epoch milliseconds\), not "):
            instant_ms("2027-01-01T09:00:00Z", "at")
    finally:
        SPEAKS_JSON.reset(token)


@on_simulated_host()
async def test_a_job_that_is_a_dict_is_refused_in_its_place(sim: SimulatedHost) -> None:
    bad, good = await sim.jobs.submit_many([{"path": "w:r", "after": 1}, Job(path="w:r", after=1)])  # type: ignore[list-item]

    assert isinstance(bad, InvalidInputError) and not isinstance(good, TocsinError)
    assert bad.message == "jobs[0]: a job must be a Job, not dict: Job(path=..., args=..., after=..., options={...})"


@on_simulated_host()
async def test_jobs_that_are_no_list_are_refused(sim: SimulatedHost) -> None:
    for jobs in (Job(path="w:r", after=1), iter([Job(path="w:r", after=1)]), "w:r", None, {"path": "w:r"}):
        with pytest.raises(InvalidInputError, match=r"^jobs must be a list of Job, not "):
            await sim.jobs.submit_many(jobs)  # type: ignore[arg-type]
