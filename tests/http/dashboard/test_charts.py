"""The last hour on the overview: what is drawn of it, and what is said of it to who does not see drawings."""

from __future__ import annotations

import re

import pytest

from tests.http.dashboard.browsing import LaterClock, browsing
from tests.http.http_client import DUE, open_host
from tocsin.actors.http.dashboard import charts
from tocsin.actors.scheduler.model.activity import Activity, ActivityMinute

MINUTE = 60_000
NOW = 29_933_333 * MINUTE


def drawn(*minutes: ActivityMinute) -> charts.Charts:
    return charts.of(Activity(since=NOW, now=NOW, minutes=minutes))


def minute(ago: int, **more: int) -> ActivityMinute:
    return ActivityMinute(at=NOW - ago * MINUTE, **more)


def test_bars_stand_on_each_other_on_a_scale_that_fits_the_highest() -> None:
    chart = drawn(minute(59, done=1), minute(0, done=30, failed=5, returned=1, started=36))
    assert chart.most == 40
    assert [(bar.kind, bar.x, bar.y, bar.height) for bar in chart.bars] == [
        ("ok", 0, 97.5, 2.5),
        ("ok", 590, 25, 75),
        ("failed", 590, 12.5, 12.5),
        ("other", 590, 10, 2.5),
    ]


def test_lines_end_where_nothing_started_and_begin_anew() -> None:
    late = {"late_p50_ms": 50, "late_p95_ms": 100}
    chart = drawn(minute(4, **late), minute(3, **late), minute(2), minute(1, **late), minute(0))
    path = dict(chart.lines)["p50"]
    assert chart.latest == 100
    assert path.count("M") == 2, "one line, a gap, and a dash"
    assert len(re.findall(r"[\d.]+ 50\.0", path)) == 5


def test_what_is_older_than_the_hour_is_left_out() -> None:
    chart = drawn(minute(61, done=5), minute(60, done=5), minute(59, done=5), minute(0))
    assert [bar.x for bar in chart.bars] == [0]
    assert chart.ended == "5 jobs done, 0 attempts failed, 0 jobs died"


def test_a_host_that_has_just_begun_has_an_empty_chart() -> None:
    chart = drawn()
    assert (chart.bars, chart.busy, chart.ended) == ([], [], "0 jobs done, 0 attempts failed, 0 jobs died")
    assert chart.late == "Nothing started"


@pytest.mark.parametrize(("value", "scale"), [(0, 1), (1, 1), (9, 9), (10, 10), (11, 20), (580, 600), (901, 1000)])
def test_a_scale_has_one_digit(value: int, scale: int) -> None:
    assert charts.nice(value) == scale


@pytest.mark.anyio
async def test_the_overview_draws_and_says_what_happened() -> None:
    clock = LaterClock()
    clock.later_ms = -clock.now_ms() % MINUTE  # a minute begins
    async with open_host(clock=clock) as (host, _), browsing(host.asgi(insecure=True)) as browser:
        jobs = host.scheduler()
        for _n in range(3):
            await jobs.run_after(0, "p")
        await jobs.run_at(DUE, "later")
        while (await jobs.status()).backlog > 1 or (await jobs.status()).in_flight:
            await jobs.history("none")
        page = await browser.visit("/ui")
    assert "3 jobs done, 0 attempts failed, 0 jobs died" in page.text
    assert '<rect class="ok"' in page.text
    assert "style=" not in page.text
    assert "<title>This minute: 3 done, 0 failed" in page.text
    assert re.search(r'<th scope="row"><time [^>]*>[^<]*</time></th><td class="number">4</td>', page.text)
