"""`tocsin demo`: it keeps what it promises, says what happened, and notices when something is wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tocsin.cli.demo.dashboard import has_screen
from tocsin.cli.demo.plan import PLAIN, POOL, POOLED, plan
from tocsin.cli.demo.receiver import Delivery, Receiver
from tocsin.cli.demo.report import Outcome, percentile
from tocsin.cli.demo.screen import Picture, screen
from tocsin.cli.demo.worker import Pulled
from tocsin.cli.keys import new_secret
from tocsin.dispatch.signing import Signer

from .processes import COMMAND, DEADLINE_S, environment, tocsin


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, int]:
    done = tocsin("demo", "--seconds", "1", "--json", cwd=tmp_path_factory.mktemp("demo"))
    return done.stdout, done.stderr, done.returncode


def test_demo_keeps_its_promises(demonstrated: tuple[str, str, int]) -> None:
    out, words, code = demonstrated
    assert code == 0, words
    outcome = json.loads(out)
    assert outcome["ok"]
    assert (outcome["delivered"], outcome["dead"], outcome["retried"]) == (51, 1, 4)
    assert outcome["pulled"] == 8
    assert outcome["dead_job"] == "exports:broken"
    assert outcome["lateness_p99_ms"] is not None
    assert outcome["elapsed_ms"] > 1_000, "so the first slot came; a fast run ends just before the second"
    assert 1 <= outcome["slots"] <= 1 + outcome["elapsed_ms"] // 1000


def test_demo_leaves_nothing_behind(demonstrated: tuple[str, str, int]) -> None:
    assert not Path(json.loads(demonstrated[0])["directory"]).exists()


def test_demo_prints_lines_where_there_is_no_terminal(demonstrated: tuple[str, str, int]) -> None:
    _, words, _ = demonstrated
    assert "\x1b" not in words
    assert "demo.db, deleted at the end" in words
    assert "delivered 51  pulled 8  dead 1  of 60" in words


def test_demo_ends_with_what_happened_and_what_to_try(tmp_path: Path) -> None:
    done = tocsin("demo", "--seconds", "0.2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in (
        "51 jobs delivered",
        "8 jobs pulled by a worker",
        "lateness p50",
        "1 dead, as planned: exports:broken",
        "slots of a schedule",
        "curl",
        "tocsin serve",
    ):
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []


@contextmanager
def demo(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run it; killed when the block ends or fails, and when it takes too long, which ends what reads from it."""
    env = environment(TMPDIR=str(folder), DISPLAY="", WAYLAND_DISPLAY="")
    command = [*COMMAND, "demo", *words]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        limit = threading.Timer(2 * DEADLINE_S, process.kill)
        limit.start()
        try:
            yield process
            process.wait(DEADLINE_S)
        finally:
            limit.cancel()
            process.kill()


def test_a_terminated_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        assert process.stderr is not None
        assert any("waiting" in line for line in process.stderr)
        process.terminate()
        assert "nothing was kept" in process.stderr.read()
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_the_demo_goes_on_for_its_dashboard_until_it_is_told_to_stop(tmp_path: Path) -> None:
    with demo(tmp_path, "--ui", "--seconds", "0.5") as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "dashboard" in line)
        address = said.split("dashboard ")[1].strip()
        with urllib.request.urlopen(address, timeout=10) as page:
            assert b"<title>Overview" in page.read()
        wait_until(lambda: _dead_of(address) >= 2)  # one each round: a round followed the first
        process.send_signal(signal.SIGINT)
        assert "nothing was kept" in process.stderr.read()
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def _dead_of(address: str) -> int:
    with urllib.request.urlopen(address.removesuffix("/ui") + "/status", timeout=10) as answer:
        return int(json.load(answer)["dead"])


def test_a_browser_is_opened_only_where_it_has_a_window() -> None:
    assert has_screen({}, "darwin")
    assert has_screen({"DISPLAY": ":0"}, "linux")
    assert not has_screen({"DISPLAY": ""}, "linux")


def test_the_outcome_of_what_goes_on_cannot_be_asked_for(tmp_path: Path) -> None:
    done = tocsin("demo", "--ui", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert "leave --json out" in done.stderr


SLOTS = (1_000, 2_000, 3_000)
FIRED = tuple((slot, "fired") for slot in SLOTS)

# ---- Without running it --------------------------------------------------------------------------


def delivery(
    id: str, *, path: str = "p", status: int = 200, attempt: int = 1, pool: str | None = None, slot: int | None = None
) -> Delivery:
    return Delivery(id, path, attempt, status, 3, pool, slot)


def picture(**more: int) -> Picture:
    counts = {"waiting": 0, "in_flight": 0, "delivered": 51, "retried": 4, "dead": 1, "slots": 3, "pulled": 8, **more}
    return Picture(elapsed_ms=8_000, total=60, pool_in_flight=0, pool_queued=0, recent=(), **counts)


def good() -> Receiver:
    receiver = Receiver(Signer([new_secret()]), "/", pool_peak=2)
    receiver.deliveries = [delivery(str(n)) for n in range(PLAIN)]
    receiver.deliveries += [delivery(f"p{n}", pool=POOL) for n in range(POOLED)]
    receiver.deliveries += [delivery("flaky", status=500 if n < 3 else 200, attempt=n) for n in (1, 2, 3)]
    receiver.deliveries += [delivery(f"beat-{slot}", slot=slot) for slot in SLOTS]
    receiver.deliveries += [delivery("doomed", status=500, attempt=n) for n in (1, 2, 3)]
    return receiver


def broken(
    receiver: Receiver,
    last: Picture,
    dead: int = 1,
    slots: Sequence[tuple[int, str]] = FIRED,
    pulled: Pulled | None = None,
) -> list[str]:
    pulled = pulled or Pulled([f"link{n}" for n in range(8)])
    letters = [{"functionPath": "exports:broken", "reason": "exhausted", "attempts": 3}] * dead
    ended = [{"slot": slot, "state": state} for slot, state in slots]
    return list(Outcome.of(plan(0, 8_000), receiver, pulled, last, letters, ended, Path("/tmp/x")).broken)


def test_nothing_is_wrong_with_a_good_run() -> None:
    assert broken(good(), picture()) == []


def test_every_broken_promise_is_noticed() -> None:
    lost, twice, forged, crowded = good(), good(), good(), good()
    lost.deliveries.pop(0)
    twice.deliveries.append(delivery("0"))
    forged.unverified = 1
    crowded.pool_peak = 3
    links = [f"link{n}" for n in range(8)]
    assert broken(good(), picture(), pulled=Pulled(links[1:])) == ["pulled 7 jobs, not 8"]
    assert broken(good(), picture(), pulled=Pulled([*links, "link0"])) == ["a pulled job ran twice"]
    assert broken(good(), picture(), pulled=Pulled(links, 1)) == [
        "1 links of chains were not told what came before them"
    ]
    assert broken(lost, picture()) == ["delivered 50 jobs, not 51"]
    assert broken(twice, picture()) == ["1 jobs were delivered again after they succeeded"]
    assert broken(forged, picture()) == ["1 signatures did not verify"]
    assert broken(crowded, picture()) == ["3 at once in a pool of 2"]
    assert broken(good(), picture(waiting=2)) == ["2 jobs were still not settled after 8.0 s"]
    assert broken(good(), picture(), dead=0) == ["0 dead jobs, not 1"]


def test_every_broken_promise_of_the_schedule_is_noticed() -> None:
    lost, twice = good(), good()
    lost.deliveries.remove(delivery(f"beat-{SLOTS[1]}", slot=SLOTS[1]))
    twice.deliveries.append(delivery(f"beat-{SLOTS[1]}", slot=SLOTS[1]))
    assert broken(lost, picture()) == ["3 slots of heartbeat fired, 2 were delivered"]
    assert broken(twice, picture()) == ["1 jobs were delivered again after they succeeded"]
    assert broken(good(), picture(), slots=[*FIRED, (9_000, "skipped")]) == ["1 slots of heartbeat did not fire"]
    assert broken(lost, picture(), slots=[FIRED[0], FIRED[2]]) == ["slots of heartbeat are 2000 ms apart, not 1000"]


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (100, 100), (0, 1)])
def test_percentiles_are_nearest_rank(percent: int, value: int) -> None:
    assert percentile(list(range(1, 101)), percent) == value
    assert percentile([], percent) is None
    assert percentile([7], percent) == 7


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_picture_fits_the_terminal(width: int) -> None:
    from io import StringIO

    from rich.console import Console

    out = Console(file=StringIO(), width=width, force_terminal=True, color_system=None)
    with screen(out, "tocsin demo", ["server http://127.0.0.1:1"]) as shown:
        shown.show(picture())
    assert isinstance(out.file, StringIO)
    drawn = [line for line in out.file.getvalue().splitlines() if "│" in line]
    assert drawn
    assert {len(line) for line in drawn} == {width}
