"""A rehearsal runs the schedulers of a copy in virtual time, and tells what happened."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.actors.rehearsal.copies import CALL_MS, DAY_MS, HOUR_MS, MIDNIGHT, copied
from tocsin import ActorHost, Job, Origin, Rate, Retry
from tocsin.actors.rehearsal.rehearse import Plan, rehearse
from tocsin.actors.scheduler.model.pool_settings import PoolOptions
from tocsin.actors.testing import VirtualClock
from tocsin.dispatch.allowed_urls import AllowedUrls
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, NotFoundError


async def a_day(host: ActorHost, clock: VirtualClock) -> None:
    """Ten jobs of one instant in a pool of two, and a schedule every hour."""
    jobs = host.scheduler("a")
    await jobs.set_pool("stripe", max_concurrency=2)
    await jobs.submit_many([Job("pay", at=MIDNIGHT + HOUR_MS, options={"pool": "stripe"}) for _ in range(10)])
    await jobs.schedules.put("hourly", cron="0 * * * *", path="report")
    await host.scheduler("b").run_at(MIDNIGHT + 2 * HOUR_MS, "mail")


def test_starts_lateness_and_pools_are_those_that_arithmetic_says() -> None:
    found = rehearse(copied(a_day), Plan(MIDNIGHT, MIDNIGHT + DAY_MS))

    assert (found.instances, found.jobs, found.attempts_known) == (2, 11, 0)
    assert found.fires == 10 + 23 + 1 and found.outcomes == {"done": 34}, "the slot at the end is not in it"
    assert (found.waiting, found.running, found.failed) == (0, 0, {})
    by_hour = {(one.at - MIDNIGHT) // HOUR_MS: one.fires for one in found.hours}
    assert by_hour[1] == 11 and by_hour[2] == 2 and by_hour[23] == 1 and 0 not in by_hour
    [pool] = found.pools
    assert (pool.instance, pool.name, pool.fires, pool.max_concurrency) == ("a", "stripe", 10, 2)
    assert pool.longest_wait_ms == 4 * CALL_MS, "five rounds of two"
    assert pool.full == pytest.approx(5 * CALL_MS / DAY_MS, abs=1e-4)
    [hour] = pool.hours
    assert (hour.at, hour.fires) == (MIDNIGHT + HOUR_MS, 10) and hour.full == pytest.approx(5 / 3600, abs=1e-4)
    assert found.late.most_ms == 4 * CALL_MS and found.late.p50_ms == 0


def test_the_same_seed_gives_the_same_result_and_another_one_another() -> None:
    async def history(host: ActorHost, clock: VirtualClock) -> None:
        await host.scheduler("a").submit_many([Job("pay", after=f"{n}m") for n in range(40)])
        await clock.sleep(25 * 60)

    class Varies:
        """Takes 0 to 6 s, and fails one time in five."""

        def __init__(self) -> None:
            self.calls = 0

        async def post(self, *_: object, **__: object) -> Answer:
            self.calls += 1
            await VirtualClock().sleep(self.calls % 7)
            return Answer(500 if self.calls % 5 == 0 else 200, {}, b"")

        async def aclose(self) -> None:
            pass

    def run(seed: int) -> dict[str, object]:
        copy = copied(history, transport=Varies(), dispatch=True)
        return rehearse(copy, Plan(MIDNIGHT + 25 * 60_000, MIDNIGHT + DAY_MS, seed)).to_dict()

    first = run(1)
    assert first == run(1)
    assert {**run(2), "seed": 1} != first
    assert 20 <= first["attemptsKnown"] <= 32  # type: ignore[operator]
    assert first["outcomes"]["failed"] and first["outcomes"]["done"] == 15  # type: ignore[index]


def test_pools_are_set_before_anything_starts_in_each_instance_that_has_them() -> None:
    pools: dict[str, PoolOptions] = {"stripe": {"max_concurrency": 10}}
    [pool] = rehearse(copied(a_day), Plan(MIDNIGHT, MIDNIGHT + DAY_MS, pools=pools)).pools
    assert (pool.max_concurrency, pool.longest_wait_ms) == (10, 0)


def test_a_rate_is_set_as_an_operator_sets_it() -> None:
    pools: dict[str, PoolOptions] = {"stripe": {"rate": Rate(6, per="1h")}}
    [pool] = rehearse(copied(a_day), Plan(MIDNIGHT, MIDNIGHT + DAY_MS, pools=pools)).pools
    assert pool.rate == "6 per 1h"


def test_a_pool_that_nothing_names_is_refused_and_those_that_there_are_are_named() -> None:
    with pytest.raises(InvalidInputError, match="'stripes'; there are: stripe"):
        rehearse(copied(a_day), Plan(MIDNIGHT, MIDNIGHT + DAY_MS, pools={"stripes": {"max_concurrency": 1}}))


def test_an_end_that_is_not_after_the_start_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="must be after its start"):
        rehearse(copied(a_day), Plan(MIDNIGHT, MIDNIGHT))


def test_only_the_instance_that_is_named_is_rehearsed() -> None:
    copy = copied(a_day, only="b")
    assert copy.instances == ["b"]
    assert rehearse(copy, Plan(MIDNIGHT, MIDNIGHT + DAY_MS)).fires == 1
    with pytest.raises(NotFoundError, match="no scheduler 'c'"):
        copied(a_day, only="c")


def test_paused_pools_hold_their_jobs_to_the_end() -> None:
    async def fill(host: ActorHost, clock: VirtualClock) -> None:
        await a_day(host, clock)
        await host.scheduler("a").set_pool("stripe", paused=True)

    found = rehearse(copied(fill), Plan(MIDNIGHT, MIDNIGHT + DAY_MS))
    [pool] = found.pools
    assert (pool.waiting, pool.fires, pool.full, pool.paused) == (10, 0, 0.0, True)
    assert pool.longest_wait_ms == 23 * HOUR_MS and found.waiting == 10


def test_slots_that_are_missed_are_told_with_their_reason() -> None:
    async def fill(host: ActorHost, clock: VirtualClock) -> None:
        schedules = host.scheduler("a").schedules
        await schedules.put("often", every="1s", path="slow", overlap="skip")
        await schedules.put("late", cron="0 * * * *", path="report", misfire="skip")

    found = rehearse(copied(fill), Plan(MIDNIGHT + 90 * 60_000, MIDNIGHT + 90 * 60_000 + 30_000))
    missed = {(one.schedule, one.reason): one.count for one in found.missed}
    assert missed["late", "misfire"] == 1, "the slot of one o'clock is half an hour late"
    assert missed["often", "overlap"] >= 10, "each run takes a second, so every other slot meets one"


def test_slots_that_a_clock_change_touches_are_named() -> None:
    async def fill(host: ActorHost, clock: VirtualClock) -> None:
        schedules = host.scheduler("a").schedules
        for name, cron in {"fixed": "30 2 * * *", "real": "*/30 * * * *", "noon": "0 12 * * *"}.items():
            await schedules.put(name, cron=cron, timezone="Europe/Berlin", path="report")
        await schedules.put("paused", cron="30 2 * * *", timezone="Europe/Berlin", path="report", paused=True)
        await schedules.put("utc", cron="30 2 * * *", path="report")

    def noted(start: datetime) -> dict[str, list[str]]:
        ms = int(start.timestamp() * 1000)
        found: dict[str, list[str]] = {}
        for one in rehearse(copied(fill), Plan(ms, ms + DAY_MS)).clock_changes:
            found.setdefault(one.schedule, []).append(one.note)
        return found

    spring = noted(datetime(2027, 3, 27, 12, tzinfo=UTC))
    assert spring == {"fixed": ["the clock skips from 02:00 to 03:00, what is due in between runs at 03:00"]}
    autumn = noted(datetime(2027, 10, 30, 12, tzinfo=UTC))
    assert autumn["fixed"] == ["02:30 comes twice, it runs the first time only"]
    assert len(autumn["real"]) == 3 and "runs both times" in autumn["real"][0]
    assert set(autumn) == {"fixed", "real"}


def test_attempts_that_ran_when_the_store_was_copied_go_on_and_end() -> None:
    class Slow:
        async def post(self, *_: object, **__: object) -> Answer:
            await VirtualClock().sleep(50)
            return Answer(200, {}, b"")

        async def aclose(self) -> None:
            pass

    async def fill(host: ActorHost, clock: VirtualClock) -> None:
        jobs = host.scheduler("a")
        await jobs.run_after(0, "callback", pool="p")
        await jobs.run_after(0, "pulled", queue="q")
        await clock.sleep(0.2)
        await jobs.claim("q")

    found = rehearse(
        copied(fill, transport=Slow(), dispatch=True), Plan(MIDNIGHT + 200, MIDNIGHT + HOUR_MS, workers={"*": 1})
    )
    assert found.outcomes == {"done": 2} and found.fires == 0
    [pool] = found.pools
    assert pool.full == pytest.approx(0.8 / 3600, abs=1e-4), "it began 0.2 s before, and takes one second"


def test_as_many_jobs_of_queues_are_worked_on_at_once_as_was_said() -> None:
    async def fill(host: ActorHost, clock: VirtualClock) -> None:
        jobs = host.scheduler("a")
        await jobs.submit_many([Job("w", after="1h", options={"queue": "emails"}) for _ in range(10)])
        await jobs.submit_many([Job("w", after="2h", options={"queue": "others"}) for _ in range(10)])

    def late(workers: dict[str, int]) -> list[int]:
        found = rehearse(copied(fill), Plan(MIDNIGHT, MIDNIGHT + DAY_MS, workers=workers))
        assert found.waiting + found.outcomes.get("done", 0) == 20
        return [one.late.most_ms for one in found.hours]

    assert late({}) == [0, 0]
    assert late({"*": 5}) == [CALL_MS, CALL_MS]
    assert late({"*": 10, "emails": 2}) == [4 * CALL_MS, 0]
    assert late({"*": 0, "emails": 10}) == [0]


def test_calls_that_take_longer_than_their_deadline_are_accepted_and_hold_their_slot() -> None:
    async def fill(host: ActorHost, clock: VirtualClock) -> None:
        await host.scheduler("a").submit_many([Job("x", after="1h", options={"pool": "p", "timeout_ms": 1_000})] * 3)

    copy = copied(fill)
    copy.history.unknown = copy.history.unknown._replace(took_ms=100_000)
    found = rehearse(copy, Plan(MIDNIGHT, MIDNIGHT + DAY_MS))
    assert found.outcomes == {"done": 3} and found.fires == 3
    assert found.pools[0].longest_wait_ms == 200_000


def test_jobs_die_as_often_as_the_history_says_they_fail() -> None:
    async def fill(host: ActorHost, clock: VirtualClock) -> None:
        await host.scheduler("a").submit_many([Job("x", after="1h", options={"retry": Retry(max_retries=2)})] * 5)

    copy = copied(fill)
    copy.history.unknown = copy.history.unknown._replace(outcome="failed", status=500)
    found = rehearse(copy, Plan(MIDNIGHT, MIDNIGHT + DAY_MS))
    assert (found.fires, found.outcomes, found.deaths) == (15, {"failed": 15}, {"exhausted": 5})


def test_jobs_go_to_named_origins_whatever_follows_them() -> None:
    async def fill(host: ActorHost, clock: VirtualClock) -> None:
        jobs = host.scheduler("a")
        after = Job("next", options={"origin": "stock", "on_dead": [Job("last", options={"origin": "mail"})]})
        dying = [Job("sorry", options={"origin": "support"})]
        await jobs.run_after("1h", "x", origin="billing", then=[after], on_dead=dying)
        await jobs.schedules.put("s", cron="0 3 * * *", path="y", then=[Job("z", options={"origin": "ledger"})])
        gone = [Job("gone", options={"origin": "sorrow"})]
        await jobs.schedules.put("o", cron="0 4 * * *", path="y", origin="clock", on_dead=gone)

    names = ("billing", "stock", "mail", "ledger", "support", "clock", "sorrow")
    named = {name: Origin(url="http://127.0.0.1:9") for name in names}
    copy = copied(fill, origins=named)
    assert copy.targets.origins == named.keys()
    assert rehearse(copy, Plan(MIDNIGHT, MIDNIGHT + DAY_MS)).outcomes == {"done": 5}


def test_jobs_go_to_urls_as_if_the_list_of_the_host_had_them() -> None:
    url = "https://hooks.customer.example/in/7?token=x"

    async def fill(host: ActorHost, clock: VirtualClock) -> None:
        jobs = host.scheduler("a")
        await jobs.run_after("1h", "x", url=url, then=[Job("y", options={"url": "https://other.example:8443/"})])
        await jobs.schedules.put("s", cron="0 3 * * *", path="z", url=url)

    allowed = AllowedUrls(["https://*.customer.example/", "https://other.example:8443/"], secrets=[bytes(32)])
    copy = copied(fill, allow_urls=allowed)
    assert copy.targets.hosts == {"https://hooks.customer.example/", "https://other.example:8443/"}
    assert rehearse(copy, Plan(MIDNIGHT, MIDNIGHT + DAY_MS)).outcomes == {"done": 3}
