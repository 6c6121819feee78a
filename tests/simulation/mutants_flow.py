"""Breakages of the rules of the flow of work, for `mutants.py`."""

from __future__ import annotations

from tests.simulation.mutants_schedules import Mutant

TESTS = "tests/simulation/flow/test_flow.py"
PUT_OFF = "actors/scheduler/transitions/put_off.py"
METERS = "actors/scheduler/state/meters.py"
RATES = "actors/scheduler/model/rate_rows.py"
FOLLOWING = "actors/scheduler/transitions/following.py"


def flow(name: str, file: str, old: str, new: str, seeds: int = 0) -> Mutant:
    return Mutant(f"flow: {name}", file, old, new, seeds=seeds, tests=TESTS)


FLOW = (
    flow("a start spends no token", METERS, "meter.credit = max(meter.credit - meter.rate[1], 0)\n", "pass\n"),
    flow(
        "tokens are not written",
        METERS,
        "            self.touched.add(pool)\n\n    def cool(",
        "            pass\n\n    def cool(",
    ),
    flow(
        "tokens come by the clock of the wall",
        METERS,
        "self._now = max(int((monotonic_s - self._zero) * 1000), self._now)\n",
        "self._now = now\n",
        seeds=200,
    ),
    flow(
        "more tokens are kept than may be spent at once",
        RATES,
        "return min(credit + max(now - at, 0) * rate[0], most(rate))\n",
        "return credit + max(now - at, 0) * rate[0]\n",
    ),
    flow(
        "a pool whose token comes is not looked at",
        METERS,
        "                del self._waits[pool]\n                yield pool\n",
        "                del self._waits[pool]\n                yield from ()\n",
    ),
    flow(
        "a cooled pool goes on", METERS, "if meter.cool_until <= self._now:\n            if", "if True:\n            if"
    ),
    flow(
        "each call is put off from the first one",
        PUT_OFF,
        "due = min(now + delay_ms,",
        "due = min(first + delay_ms,",
    ),
    flow(
        "a call is put off for ever",
        PUT_OFF,
        "LARGEST_MS if until is None else until, LARGEST_MS)",
        "LARGEST_MS)",
        seeds=200,
    ),
    flow(
        "a call for a running job is lost",
        PUT_OFF,
        "    later.freed = [job_id for job_id in later.freed if only and job_id not in only]\n",
        "    later.freed = [job_id for job_id in later.freed if only and job_id not in only]\n    ids = []\n",
    ),
    flow(
        "a period begins with no job",
        PUT_OFF,
        "    state.storage.put(key, encode(ThrottleRow(until, turn.now, job.incarnation)))\n",
        "",
    ),
    flow(
        "what follows a death is forgotten",
        FOLLOWING,
        '        start(turn, job, chains.get(job.id, ()), _told(dead), "dead")\n',
        "        pass\n",
    ),
    flow(
        "what follows a death follows it twice",
        FOLLOWING,
        "    await _follow(turn, deaths)\n\n\nasync def follow_later",
        "    await _follow(turn, deaths)\n    await _follow(turn, deaths)\n\n\nasync def follow_later",
    ),
)
