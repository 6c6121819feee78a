"""`GET /metrics`: who may read it, what it tells, and that its counts agree with what was done."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tests.http.http_client import DUE, HttpClient, client_of, open_host, refused
from tocsin import Job, Retry
from tocsin.actors.http.metrics.collector import metrics
from tocsin.actors.http.metrics.families import FAMILIES
from tocsin.actors.http.metrics.traffic import Traffic
from tocsin.actors.scheduler.actor.measures import Measures
from tocsin.actors.scheduler.inflight.activity import FAILED, OUTCOMES, RETURNED
from tocsin.actors.scheduler.model.counters import ENDS
from tocsin.actors.scheduler.queries import host_counts
from tocsin.actors.scheduler.queries.host_counts import OTHERS, SHOWN
from tocsin.dispatch.callback import Verdict
from tocsin.dispatch.transport import Answer
from tocsin.errors import StoreUnavailable
from tocsin.storage.histogram import Histogram

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
TOKENS = ["all:read:secret-all", "some:read@tenant-*:secret-some", "maker:schedule:secret-maker"]
OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}
Values = dict[tuple[str, ...], float]


def values(text: str) -> dict[str, Values]:
    """Values by name and the values of labels, in the order of their names."""
    found: dict[str, Values] = {}
    for family in plain(text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


async def scrape(http: HttpClient) -> dict[str, Values]:
    answer = await http.get("/metrics")
    assert answer.status_code == 200, answer.text
    return values(answer.text)


# ---- Who may -------------------------------------------------------------------------------------


async def test_metrics_are_for_tokens_that_may_read_the_whole_host() -> None:
    async with open_host() as (host, _):
        app = host.asgi(tokens=TOKENS)
        async with client_of(app) as client:
            refused(await client.get("/metrics"), 401, "UNAUTHENTICATED", "token")
        for secret, status in (("secret-all", 200), ("secret-some", 403), ("secret-maker", 403)):
            async with client_of(app, token=secret) as client:
                assert (await client.get("/metrics")).status_code == status, secret
        async with client_of(app, token="secret-some") as client:
            refused(await client.get("/metrics"), 403, "FORBIDDEN", "whole host")


async def test_an_app_s_own_rule_is_asked_about_the_whole_host() -> None:
    asked: list[tuple[str, str, str | None]] = []

    def rule(caller: Any, action: str, instance: str, resource: str | None) -> bool:
        asked.append((action, instance, resource))
        return len(asked) == 1

    async with open_host() as (host, _), client_of(host.asgi(authorize=rule)) as client:
        assert (await client.get("/metrics")).status_code == 200
        assert asked == [("metrics", "", None)]
        refused(await client.get("/metrics"), 403, "FORBIDDEN", "read metrics")


async def test_it_takes_get_and_no_parameters(http_client: HttpClient) -> None:
    assert (await http_client.post("/metrics")).status_code == 405
    assert (await http_client.get("/metrics", params={"x": "1"})).status_code == 400
    assert (await http_client.get("/i/t/metrics")).status_code == 404, "it is of the host, not of one scheduler"


# ---- What it tells -------------------------------------------------------------------------------


async def test_both_formats_have_every_family_of_the_table_and_no_other(http_client: HttpClient) -> None:
    await http_client.schedule(id="some-job", delayMs=0)
    await http_client.until("some-job", None)
    table = {one.name: one for one in FAMILIES if one.name != "tocsin_http_connections_open" and not one.of_cluster}
    text = await http_client.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "some-job" not in text.text
    found = {one.name: one for one in plain(text.text) if one.name.startswith("tocsin_")}
    assert found.keys() == table.keys()
    for name, one in found.items():
        family = table[name]
        assert one.type == family.kind and one.documentation == family.said
        for sample in one.samples:
            assert set(sample.labels) - {"le"} == set(family.labels), name
    answer = await http_client.get("/metrics", headers=OPENMETRICS)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    parsed: Any = openmetrics(answer.text)  # type: ignore[no-untyped-call]
    assert {one.name for one in parsed if one.name.startswith("tocsin_")} == table.keys()


def test_the_page_has_a_row_for_each_metric_and_no_other() -> None:
    rows = re.findall(r"(?m)^\| `(tocsin_\w+)` \| (\w+) \| ([^|]*) \| (.+) \|$", PAGE.read_text("utf-8"))
    shown = [
        (one.shown, one.kind, ", ".join(f"`{label}`" for label in one.labels) or "–", one.said) for one in FAMILIES
    ]
    assert rows == shown


def test_every_outcome_of_an_attempt_is_one_of_the_known_ones() -> None:
    verdicts = {one.value for one in Verdict} - {"accepted", "stopped"}  # which end no attempt
    assert verdicts <= set(OUTCOMES) and FAILED.isdisjoint(RETURNED) and len(set(OUTCOMES)) == len(OUTCOMES)


async def test_requests_count_by_route_and_status_whatever_is_asked(http_client: HttpClient) -> None:
    await http_client.get("/i/tenant-1/status")
    await http_client.get("/status")
    await http_client.get("/get", params={"id": "!"})
    for path in ("/nowhere", "/i/x/nowhere/at/all"):
        await http_client.get(path)
    await http_client.client.request("BREW", "/status")
    counts = (await scrape(http_client))["tocsin_http_requests_total"]
    assert counts == {
        ("GET", "/status", "200"): 2,
        ("GET", "/get", "400"): 1,
        ("GET", "(none)", "404"): 2,
        ("other", "/status", "405"): 1,
    }


async def test_names_are_bounded_and_the_others_are_summed_up(http_client: HttpClient) -> None:
    for n in range(SHOWN + 5):
        jobs = http_client.host.scheduler(f"i{n:02}")
        await jobs.submit_many([Job(path="p", at=DUE, options={"queue": f"q{n}", "pool": f"p{n}"})] * 1)
        await jobs.submit_many([Job(path="p", at=DUE) for _ in range(n)])
    found = await scrape(http_client)
    by_name = found["tocsin_scheduler_jobs"]
    assert len(by_name) == 3 * (SHOWN + 1)
    assert by_name["i24", "waiting"] == 25 and by_name[OTHERS, "waiting"] == 1 + 2 + 3 + 4 + 5
    for name in ("tocsin_queue_waiting_jobs", "tocsin_pool_waiting_jobs"):
        assert len(found[name]) == SHOWN + 1
    assert sum(found["tocsin_queue_waiting_jobs"].values()) == found["tocsin_jobs"]["waiting",] == 25 + 24 * 25 / 2
    assert found["tocsin_schedulers"] == {(): SHOWN + 5}


async def test_only_what_has_changed_is_read_again(http_client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(6):
        await http_client.host.scheduler(f"i{n}").run_at(DUE, "p")
    read: list[str] = []
    original = host_counts.Counting._read

    async def noted(self: host_counts.Counting, name: str) -> object:
        read.append(name)
        return await original(self, name)

    monkeypatch.setattr(host_counts.Counting, "_read", noted)
    monkeypatch.setattr(host_counts, "READ_AT_ONCE", 4)
    assert (await scrape(http_client))["tocsin_schedulers_unread"] == {(): 2}
    found = await scrape(http_client)
    assert found["tocsin_schedulers_unread"] == {(): 0} and found["tocsin_jobs"]["waiting",] == 6
    assert sorted(read) == [f"i{n}" for n in range(6)]
    read.clear()
    await http_client.host.scheduler("i3").run_at(DUE, "p")
    await http_client.host.scheduler("i4").remove()
    found = await scrape(http_client)
    assert sorted(read) == ["i3", "i4"] and found["tocsin_jobs"]["waiting",] == 6
    assert found["tocsin_jobs_ended_total"]["removed",] == 1


async def test_a_store_that_cannot_be_read_leaves_out_only_what_is_in_it(
    http_client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(host_counts.Counting, "_read", broken)
    await http_client.schedule()
    found = await scrape(http_client)
    assert "tocsin_jobs" not in found and found["tocsin_jobs_accepted_total"] == {(): 1}
    monkeypatch.undo()
    assert (await scrape(http_client))["tocsin_jobs"]["waiting",] == 1, "it is read once it can be"


def test_a_process_without_the_store_tells_of_itself_only() -> None:
    found = {one.name for one in metrics(Measures((), Histogram((1.0,)), None), Traffic())}
    assert found == {one.name for one in FAMILIES if not one.of_store} - {"tocsin_http_connections_open"}


# ---- What agrees ---------------------------------------------------------------------------------


class Balance:
    """What was accepted and has ended since a host has begun, beside what is there."""

    def __init__(self, found: dict[str, Values]) -> None:
        self.accepted = found["tocsin_jobs_accepted_total"][()]
        ended = found["tocsin_jobs_ended_total"]
        assert {how for (how,) in ended} == {*ENDS, "removed"}
        self.ended = sum(ended.values())
        self.there = sum(found["tocsin_jobs"].values())
        letters = sum(ended[how,] for how in ("discarded", "retired"))
        self.letters = sum(found["tocsin_jobs_died_total"].values()) - letters
        self.letters -= found["tocsin_dead_letters_retried_total"][()]
        self.dead = found["tocsin_jobs"]["dead",]


async def measured(sim: SimulatedHost) -> Balance:
    from prometheus_client import CollectorRegistry, generate_latest

    measures = await sim.host.measures()

    class Collector:
        def collect(self) -> Iterator[Any]:
            return metrics(measures, Traffic())

    registry = CollectorRegistry()
    registry.register(Collector())
    return Balance(values(generate_latest(registry).decode()))


@on_simulated_host()
async def test_what_was_accepted_has_ended_or_is_there_over_crashes(sim: SimulatedHost) -> None:
    sim.reply = lambda one: OK if sim.random.random() < 0.6 else Answer(500, {}, b"")
    other = sim.host.scheduler("other")
    await other.run_after("1h", "work:run", id="same")
    for turn in range(4):
        start = await measured(sim)
        assert (start.accepted, start.ended) == (0, 0) or turn == 0
        jobs = sim.jobs
        await jobs.submit_many(
            [Job(path="work:run", after=n / 2, options={"retry": Retry(max_retries=0)}) for n in range(30)]
        )
        await jobs.run_after("1h", "work:run", id="same")
        await jobs.run_after("2h", "work:run", id="same", on_conflict="replace")
        await jobs.set_pool("shut", paused=True)
        await jobs.run_after(0, "work:run", expires_at=sim.now + 5_000, pool="shut")
        await sim.sleep(8)
        await jobs.cancel("same")
        for letter in (await jobs.dead(limit=5)).records:
            await (jobs.dead_retry if sim.random.random() < 0.5 else jobs.dead_cancel)(letter.id)
        await asyncio.sleep(sim.random.random())
        end = await measured(sim)
        assert end.accepted - start.accepted == end.ended - start.ended + end.there - start.there
        assert end.letters - start.letters == end.dead - start.dead
        assert end.accepted - start.accepted == 33 and end.dead > 0
        assert await sim.faults() == []
        await sim.crash()
        await sim.open()


@on_simulated_host()
async def test_a_scheduler_with_a_test_clock_is_counted_nowhere(sim: SimulatedHost) -> None:
    test = sim.host.scheduler("test")
    await test.clock.create(sim.now)
    await test.run_after("1d", "work:run")
    await test.clock.advance("2d")
    await test.run_after("1d", "work:run")
    found = await measured(sim)
    assert (found.accepted, found.ended, found.there) == (0, 0, 0)
    measures = await sim.host.measures()
    assert measures.schedulers is not None and measures.schedulers.test_clocks == 1


@on_simulated_host()
async def test_the_oldest_due_job_is_told_but_not_of_a_paused_scheduler(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("gpu", paused=True)
    await sim.jobs.run_after(0, "work:run", pool="gpu")
    await sim.host.scheduler("other").run_after(10, "work:run", queue="mail")
    await sim.sleep(30)
    measures = await sim.host.measures()
    assert measures.schedulers is not None and measures.schedulers.counts is not None
    assert measures.schedulers.counts.oldest_ms == {"callback": 30_000, "worker": 20_000}
    assert measures.schedulers.counts.due == 2
    await sim.jobs.pause()
    measures = await sim.host.measures()
    assert measures.schedulers is not None and measures.schedulers.counts is not None
    assert measures.schedulers.counts.oldest_ms == {"worker": 20_000}
