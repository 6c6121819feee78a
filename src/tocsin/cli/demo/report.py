"""Print the demo's outcome, whether it kept the promises, and what to try next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tocsin.cli.demo.plan import BEAT, BEAT_MS, CHAINS, DOOMED_PATH, POOL, POOL_CAP, Plan
from tocsin.cli.output import console, emit, put, show
from tocsin.cli.words import printable

if TYPE_CHECKING:
    from tocsin.cli.demo.receiver import Receiver
    from tocsin.cli.demo.screen import Picture
    from tocsin.cli.demo.worker import Pulled

NEXT: Final = """\
  # a server that calls your app on port 8000 back, unsigned
  tocsin serve --insecure --origin-url http://127.0.0.1:8000

  # a job, from anywhere
  curl http://127.0.0.1:8321/schedule -H 'content-type: application/json' \\
       -d '{"functionPath": "hello:world", "delayMs": 5000}'
  curl http://127.0.0.1:8321/status
  tocsin ls

  # the dashboard of that server, http://127.0.0.1:8321/ui; or of this demo
  tocsin demo --ui

  # one that recurs, and what its rule comes to
  tocsin schedules put report reports:send --cron "0 9 * * mon-fri"
  tocsin next "30 2 * * *" --tz America/New_York

  # work that is pulled: handlers = {"reports:render": render} in work.py
  curl http://127.0.0.1:8321/schedule -H 'content-type: application/json' \\
       -d '{"functionPath": "reports:render", "queue": "reports", "delayMs": 0}'
  tocsin worker work:handlers

  # signed, as everywhere but on your own machine
  export TOCSIN_SECRETS=$(tocsin keys new)
  tocsin serve --origin-url https://app.example"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome in numbers. `broken` lists the promises that were not kept."""

    delivered: int
    repeated: int
    retried: int
    callbacks: int
    unverified: int
    pool_peak: int
    slots: int
    pulled: int
    dead: int
    dead_job: str | None
    dead_reason: str | None
    dead_attempts: int
    dead_status: int | None
    lateness_p50_ms: int | None
    lateness_p99_ms: int | None
    elapsed_ms: int
    directory: str
    broken: Sequence[str]

    @classmethod
    def of(
        cls,
        jobs: Plan,
        receiver: Receiver,
        pulled: Pulled,
        last: Picture,
        dead: Sequence[Mapping[str, Any]],
        slots: Sequence[Mapping[str, Any]],
        directory: Path,
    ) -> Outcome:
        letter = dead[0] if dead else {}
        late = receiver.lateness_ms()
        return cls(
            delivered=receiver.delivered,
            repeated=receiver.repeated,
            retried=receiver.retried,
            callbacks=len(receiver.deliveries),
            unverified=receiver.unverified,
            pool_peak=receiver.pool_peak,
            slots=len(receiver.slots),
            pulled=len(pulled.done),
            dead=len(dead),
            dead_job=letter.get("functionPath"),
            dead_reason=letter.get("reason"),
            dead_attempts=letter.get("attempts", 0),
            dead_status=letter.get("lastStatus") or (letter.get("lastError") or {}).get("status"),
            lateness_p50_ms=percentile(late, 50),
            lateness_p99_ms=percentile(late, 99),
            elapsed_ms=last.elapsed_ms,
            directory=str(directory),
            broken=(*_broken(jobs, receiver, last, dead, slots), *_unpulled(jobs, pulled)),
        )


def percentile(values: Sequence[int], percent: int) -> int | None:
    """Return the nearest-rank percentile of sorted values; None if there are none."""
    if not values:
        return None
    return values[max(0, -(-len(values) * percent // 100) - 1)]


def _broken(
    jobs: Plan, receiver: Receiver, last: Picture, dead: Sequence[Any], slots: Sequence[Mapping[str, Any]]
) -> list[str]:
    fired = {one["slot"] for one in slots if one["state"] == "fired"}
    waiting = last.waiting + last.in_flight
    doubts = [
        (waiting > 0, f"{waiting} jobs were still not settled after {last.elapsed_ms / 1000:.1f} s"),
        (receiver.delivered != jobs.delivered, f"delivered {receiver.delivered} jobs, not {jobs.delivered}"),
        (receiver.repeated > 0, f"{receiver.repeated} jobs were delivered again after they succeeded"),
        (receiver.retried != jobs.retried, f"{receiver.retried} retries, not {jobs.retried}"),
        (receiver.unverified > 0, f"{receiver.unverified} signatures did not verify"),
        (receiver.pool_peak > POOL_CAP, f"{receiver.pool_peak} at once in a pool of {POOL_CAP}"),
        (len(dead) != jobs.dead, f"{len(dead)} dead jobs, not {jobs.dead}"),
        (len(fired) != len(slots), f"{len(slots) - len(fired)} slots of {BEAT} did not fire"),
        (fired != receiver.slots, f"{len(fired)} slots of {BEAT} fired, {len(receiver.slots)} were delivered"),
        (_gap(fired) > BEAT_MS, f"slots of {BEAT} are {_gap(fired)} ms apart, not {BEAT_MS}"),
        (any(each.get("functionPath") != DOOMED_PATH for each in dead), f"a job other than {DOOMED_PATH} is dead"),
    ]
    return [words for wrong, words in doubts if wrong]


def _unpulled(jobs: Plan, pulled: Pulled) -> list[str]:
    doubts = [
        (len(set(pulled.done)) != jobs.pulled, f"pulled {len(set(pulled.done))} jobs, not {jobs.pulled}"),
        (len(pulled.done) != len(set(pulled.done)), "a pulled job ran twice"),
        (pulled.unlinked > 0, f"{pulled.unlinked} links of chains were not told what came before them"),
    ]
    return [words for wrong, words in doubts if wrong]


def _gap(slots: set[int]) -> int:
    """Return the longest gap between consecutive values."""
    ordered = sorted(slots)
    return max((after - before for before, after in pairwise(ordered)), default=0)


def report(outcome: Outcome, *, as_json: bool) -> bool:
    """Print the outcome; return whether every promise was kept."""
    if as_json:
        emit({**asdict(outcome), "ok": not outcome.broken})
    else:
        _print(outcome)
    return not outcome.broken


def _print(outcome: Outcome) -> None:
    from rich.table import Table
    from rich.text import Text

    good = "+" if not console().encoding.startswith("utf") else "✓"
    mark = Text("·", style="dim") if outcome.broken else Text(good, style="bold green")
    grid = Table.grid(padding=(0, 1, 0, 0))
    for words in outcome.broken:
        grid.add_row(Text("BROKEN", style="bold red"), Text(printable(words)))
    for words in _facts(outcome):
        grid.add_row(mark, Text(printable(words)))
    grid.add_row("", Text(f"The store was in {outcome.directory}, which is deleted now.", style="dim"))
    put()
    show(grid)
    put()
    show(Text("Try next", style="bold"))
    put(NEXT)


def _facts(outcome: Outcome) -> list[str]:
    once = "" if outcome.repeated else ", none of them twice"
    facts = [
        f"{outcome.delivered} jobs delivered in {outcome.elapsed_ms / 1000:.1f} s{once}",
        f"{outcome.callbacks} callbacks verified by their signature, {outcome.retried} of them retries",
        f"at most {outcome.pool_peak} at once in the pool {POOL}, whose cap is {POOL_CAP}",
    ]
    if outcome.slots:
        facts.append(f"{outcome.slots} slots of a schedule that fires every second, each of them once")
    if outcome.pulled:
        facts.append(f"{outcome.pulled} jobs pulled by a worker: {CHAINS} chains of two, each told of the last")
    if outcome.lateness_p50_ms is not None:
        facts.append(
            f"lateness p50 {outcome.lateness_p50_ms} ms, p99 {outcome.lateness_p99_ms} ms "
            "(of first tries outside the pool)"
        )
    if outcome.dead:
        status = f", last answer {outcome.dead_status}" if outcome.dead_status else ""
        tries = "try" if outcome.dead_attempts == 1 else "tries"
        facts.append(
            f"{outcome.dead} dead, as planned: {outcome.dead_job} after {outcome.dead_attempts} {tries} "
            f"({outcome.dead_reason}{status})"
        )
    return facts
