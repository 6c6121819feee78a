"""`tocsin simulate`: reads a store, also while it is in use, and leaves it as it is."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tocsin import ActorHost, Job
from tocsin.cli import failure

from .conftest import Run

START = "2027-03-27T12:00:00Z"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    file = tmp_path / "store.db"

    async def fill() -> None:
        async with ActorHost.open(f"sqlite:///{file}", origin="http://127.0.0.1:9", insecure=True) as host:
            await some_jobs(host)

    asyncio.run(fill())
    return file


async def some_jobs(host: ActorHost) -> None:
    jobs = host.scheduler()
    await jobs.submit_many([Job("pay", at=1_806_152_400_000, options={"pool": "stripe"}) for _ in range(20)])
    await jobs.set_pool("stripe", max_concurrency=4)
    await jobs.schedules.put("report", cron="30 2 * * *", timezone="Europe/Berlin", path="report", misfire="skip")


def digest(store: Path) -> str:
    return hashlib.sha256(store.read_bytes()).hexdigest()


def test_a_rehearsal_prints_starts_pools_and_clock_changes_within_80_columns(run: Run, store: Path) -> None:
    before, files = digest(store), sorted(store.parent.iterdir())
    result = run("simulate", str(store), "--from", START, "--until", "+1d", "--call-time", "30s")

    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "starts 21" in lines and "late p50 1m, p99 2m, at most 2m" in lines
    assert "stripe 4 20 0.2% 2m 2m" in lines
    assert any("the clock skips from 02:00 to 03:00" in " ".join(lines[n : n + 3]) for n in range(len(lines)))
    assert "copied 1 scheduler with 20 jobs; rehearsing 1d from 2027-03-27T12:00:00.000Z" in result.stderr
    assert (digest(store), sorted(store.parent.iterdir())) == (before, files), "it is only read"


def test_json_and_svg_have_what_the_tables_have(run: Run, store: Path, tmp_path: Path) -> None:
    drawn = tmp_path / "week.svg"
    result = run(
        "simulate", "--store", f"sqlite:///{store}", "--from", START, "--until", "2027-03-28T12:00:00Z",
        "--call-time", "30s", "--pool", "stripe=10", "--rate", "stripe=100/1m/5", "--json", "--svg", str(drawn),
    )  # fmt: skip

    found = json.loads(result.stdout)
    [pool] = found["pools"]
    assert (pool["maxConcurrency"], pool["rate"]) == (10, "100 per 1m, bursts of 5")
    assert (found["fires"], found["outcomes"], found["failed"]) == (21, {"done": 21}, {})
    assert [one["schedule"] for one in found["clockChanges"]] == ["report"]
    picture = ElementTree.parse(drawn).getroot()
    assert picture.tag == f"{SVG}svg"
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert "stripe" in words and any(str(word).startswith("21 starts") for word in words)
    assert sum("starts" in str(one.text) for one in picture.iter(f"{SVG}title")) == 1, "the strip of the pool"


@pytest.mark.parametrize("typed", ["stripe=100/1m/5", "stripe=100/1m+5"])
def test_a_rate_is_typed_as_for_pools_set(run: Run, store: Path, typed: str) -> None:
    result = run("simulate", str(store), "--from", START, "--until", "+1d", "--rate", typed, "--json")
    assert json.loads(result.stdout)["pools"][0]["rate"] == "100 per 1m, bursts of 5"
    result = run("simulate", str(store), "--rate", "stripe=100")
    assert result.exit_code == 2
    assert "--rate of stripe must be as 100/1m, or 100/1m/5 with bursts of 5, not '100'" in result.output


def test_a_store_that_a_server_uses_is_rehearsed_as_of_one_instant(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "busy.db"

    async def main() -> int:
        async with ActorHost.open(f"sqlite:///{file}", origin="http://127.0.0.1:9", insecure=True) as host:
            await some_jobs(host)
            words = ("simulate", str(file), "--from", START, "--until", "+1d", "--json")
            result = await asyncio.get_running_loop().run_in_executor(None, lambda: run(*words))
            return int(json.loads(result.stdout)["fires"])

    assert asyncio.run(main()) == 21


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--until", "yesterday"], "--until must be like"),
        (["--until", "2027-03-27T11:00:00Z"], "--until must be after the start"),
        (["--until", "+9000d"], "within a year"),
        (["--pool", "stripe"], "--pool must be as stripe=10, not 'stripe'"),
        (["--pool", "stripe=99999"], "max_concurrency must be"),
        (["--rate", "stripe=fast"], "--rate of stripe must be as 100/1m, or 100/1m/5 with bursts of 5, not 'fast'"),
        (["--rate", "stripe=1/1w"], 'rate.per must look like "90s"'),
        (["--workers", "many"], "--workers must be as 8 or emails=8, not 'many'"),
        (["--pool", "strip=10"], "nothing names"),
    ],
)
def test_what_cannot_be_rehearsed_is_wrong_usage(run: Run, store: Path, words: list[str], said: str) -> None:
    result = run("simulate", str(store), "--from", START, *words)
    assert result.exit_code == 2 and result.stdout == ""
    said = said.replace("nothing names", "names the pool 'strip'; there are: stripe")
    assert said in " ".join(result.stderr.split())


def test_a_store_or_a_scheduler_that_is_not_there_is_said(run: Run, store: Path, tmp_path: Path) -> None:
    result = run("simulate", str(store), "--instance", "nobody")
    assert result.exit_code == failure.Refused.exit_code and "no scheduler 'nobody'" in result.stderr
    result = run("simulate", str(tmp_path / "none.db"))
    assert result.exit_code == failure.StoreUnusable.exit_code and "there is no store" in result.stderr
    assert not (tmp_path / "none.db").exists()
