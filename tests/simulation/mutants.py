"""Small deliberate breakages, each of which the simulation must catch: `python -m tests.simulation.mutants`.

A simulator that has never seen a fault proves nothing. Each mutant is one replacement in a copy of the tree.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from tests.mutants.breaking import broken_copy, run_tests
from tests.simulation.mutants_acts import ACTS
from tests.simulation.mutants_clocks import CLOCKS
from tests.simulation.mutants_flow import FLOW
from tests.simulation.mutants_flow_groups import FLOW_GROUPS
from tests.simulation.mutants_hosts import HOSTS
from tests.simulation.mutants_owners import OWNERS
from tests.simulation.mutants_queues import QUEUES
from tests.simulation.mutants_schedules import SCHEDULES, Mutant

LIMIT_S = 900


MUTANTS = (
    Mutant(
        "an answer does not wait for its batch",
        "actors/runtime/activation.py",
        "        layer.answers = answers\n",
        "        for reply, answer in answers:\n            if not reply.done():\n"
        "                reply.set_result(answer)\n",
    ),
    Mutant(
        "work after a commit does not wait for it",
        "actors/runtime/activation.py",
        "        self.storage.layer = CLOSED\n        self.storage.sealed.append(layer)\n",
        "        self.storage.layer = CLOSED\n        for func, args in layer.after_commit:\n            func(*args)\n"
        "        layer.after_commit = []\n        self.storage.sealed.append(layer)\n",
    ),
    Mutant(
        "an event's error is shared by its neighbours",
        "actors/runtime/activation.py",
        "            elif shared:\n                self._line.put_back(group, alone=True)\n",
        "            elif shared:\n                fail_all((reply for _, reply in group), error)\n",
    ),
    Mutant(
        "events that share a turn are carried out in the other order",
        "actors/scheduler/actor/scheduler_actor.py",
        "        answers: list[object] = []\n",
        "        answers: list[object] = []\n        sharing = sharing[::-1]\n",
        also=(("actors/scheduler/actor/scheduler_actor.py", "return answers\n", "return answers[::-1]\n"),),
    ),
    Mutant(
        "events whose shared turn failed change places",
        "actors/runtime/line.py",
        "self[:0] = group",
        "self[:0] = group[::-1]",
    ),
    Mutant(
        "a failed turn keeps what it took from the host",
        "actors/runtime/going.py",
        "        for func, args in lost.if_lost:\n            func(*args)\n",
        "",
    ),
    Mutant(
        "rows read ahead are given though the turn has changed them",
        "actors/runtime/overlay.py",
        "if key in read and key not in own.puts and key not in own.deletes:",
        "if key in read:",
    ),
    Mutant(
        "two turns at once",
        "actors/runtime/activation.py",
        "        if self._worker is None:\n            self._worker = self",
        "        if True:\n            self._worker = self",
    ),
    Mutant(
        "sealed batches are not read",
        "actors/runtime/overlay.py",
        "for layer in (*self.sealed, self.layer)",
        "for layer in (self.layer,)",
    ),
    Mutant(
        "a lost commit does not break the activation",
        "actors/runtime/activation.py",
        "        elif error is not None:\n            self.break_(error)\n        else:\n            self._durable",
        "        else:\n            self._durable",
    ),
    Mutant(
        "a failed turn keeps its memory",
        "actors/runtime/going.py",
        "        self.actor = None\n        if self._worker is not me:\n",
        "        if self._worker is not me:\n",
    ),
    Mutant(
        "a failed turn keeps its writes",
        "actors/runtime/going.py",
        "        lost, self.storage.layer = self.storage.layer, CLOSED\n",
        "        lost, self.storage.layer = self.storage.layer, CLOSED\n"
        "        if lost.puts or lost.deletes:\n            self._commit(lost, UNSET)\n",
        also=(
            (
                "actors/runtime/going.py",
                "from tocsin.storage.api import OrderedStore\n",
                "from tocsin.storage.api import UNSET, OrderedStore\n",
            ),
        ),
    ),
    Mutant(
        "a lease shorter than its attempt",
        "actors/scheduler/transitions/claim.py",
        "        until=turn.wall + length_ms,",
        "        until=turn.wall + 2_000,",
    ),
    Mutant(
        "a missed deadline is retried like a failure",
        "actors/scheduler/transitions/job.py",
        "    if outcome.verdict in (Verdict.UNKNOWN, Verdict.STOPPED):\n",
        "    if outcome.verdict is Verdict.STOPPED:\n",
    ),
    Mutant(
        "the attempt of a cancelled job brings it back",
        "actors/scheduler/transitions/job.py",
        "    if lease.orphan:\n        return CANCELLED\n    if outcome",
        "    if outcome",
    ),
    Mutant(
        "a full pool starts one more",
        "actors/scheduler/state/job_queues.py",
        "    return 0 if row.paused else max(row.cap - held, 0)",
        "    return 0 if row.paused else max(row.cap - held, 1)",
    ),
    Mutant(
        "leases do not count as pool slots after a restart",
        "actors/scheduler/state/rebuild.py",
        "            state.find(*names, lease)\n",
        "            state.find(*names, lease)\n            state.lines.holders.clear()\n",
    ),
    Mutant(
        "the stored wake time leaves out lease ends",
        "actors/scheduler/actor/end_of_turn.py",
        "        stored_at = (overdue, outlook.next_due, state.next_timer, end_at)",
        "        stored_at = (overdue, outlook.next_due, state.next_timer)",
    ),
    Mutant(
        "the stored wake time leaves out overdue heads",
        "actors/scheduler/actor/end_of_turn.py",
        "        stored_at = (overdue, outlook.next_due, state.next_timer, end_at)",
        "        stored_at = (outlook.next_due, state.next_timer, end_at)",
    ),
    Mutant(
        "dead letters are not counted",
        "actors/scheduler/state/scheduler_state.py",
        "        self.counters.dead += 1",
        "        pass",
    ),
    Mutant(
        "expiry has no timer",
        "actors/scheduler/state/scheduler_state.py",
        "            self.put_timer(job.expires_at, EXPIRE, job.id)",
        "            pass",
    ),
    Mutant(
        "a lost claim keeps its permits",
        "actors/scheduler/inflight/lanes_to.py",
        "        self.in_flight -= 1\n        self.permits.give(1, level)\n",
        "        self.in_flight -= 1\n",
    ),
    Mutant(
        "a settlement whose batch was lost is forgotten",
        "actors/scheduler/inflight/lanes.py",
        "        self._finished[:0] = finished",
        "        pass",
    ),
    Mutant(
        "busy actors are evicted",
        "actors/runtime/activation.py",
        "return self.settled and not self._line",
        "return not self._line",
    ),
    Mutant(
        "accepted work counts as done",
        "actors/scheduler/transitions/job.py",
        "    if outcome.verdict is Verdict.ACCEPTED:\n",
        "    if outcome.verdict is Verdict.ACCEPTED and not lease.orphan:\n"
        '        return End("done", Done())\n'
        "    if outcome.verdict is Verdict.ACCEPTED:\n",
    ),
    Mutant(
        "accepted work gives its lease back at once",
        "actors/scheduler/transitions/job.py",
        'kind="accepted", until=wall + length,',
        'kind="accepted", until=wall,',
    ),
    Mutant(
        "a completion leaves the lease",
        "actors/scheduler/transitions/complete.py",
        "        apply(turn, found.job, one.lease, decision)\n",
        "        _become(turn, found.job, decision.next)\n",
        also=(
            (
                "actors/scheduler/transitions/complete.py",
                "import apply\n",
                "import _become, apply\n",
            ),
        ),
    ),
    Mutant(
        "an accepted lease that lapses takes its job along",
        "actors/scheduler/actor/expiry.py",
        "        if undelivered(token):\n",
        '        if lease.kind == "accepted" and job:\n            turn.state.drop_lease(token)\n'
        "            turn.state.erase_job(job, None)\n            continue\n        if undelivered(token):\n",
    ),
    Mutant(
        "a paused pool starts jobs",
        "actors/scheduler/state/job_queues.py",
        "    return 0 if row.paused else max(",
        "    return max(",
    ),
    Mutant(
        "a moved job keeps its old place",
        "actors/scheduler/transitions/pools.py",
        "    apply_to_waiting(turn, known.job, known.at, decide.move(known.at, due))\n",
        "    turn.state.enter_line(known.job, decide.move(known.at, due).at)\n",
    ),
    Mutant(
        "a job that expired in line leaves its row",
        "actors/scheduler/transitions/apply.py",
        '            state.erase_job(job, "expired")\n            state.counters.expired += 1\n',
        "            state.counters.expired += 1\n",
    ),
    Mutant(
        "jobs of two schedulers have one webhook-id",
        "actors/scheduler/state/turn.py",
        'return f"{self.ctx.activation}-{self.ctx.next_seq()}"',
        'return f"{self.ctx.epoch}-{self.ctx.next_seq()}"',
    ),
    Mutant(
        "an activation is named without chance, so a restored store names jobs as the one before did",
        "actors/runtime/ids.py",
        'f"{drawn:016x} {owner} {actor}"',
        'f"{owner} {actor}"',
    ),
    Mutant(
        "an epoch follows its store only, so a restored one sends lower fences than the one before",
        "actors/runtime/overlay.py",
        'epoch = max(int(row or b"0") + 1, least)',
        'epoch = int(row or b"0") + 1',
    ),
    *SCHEDULES,
    *ACTS,
    *QUEUES,
    *OWNERS,
    *FLOW,
    *FLOW_GROUPS,
    *HOSTS,
    *CLOCKS,
    Mutant(
        "live attempts are claimed again when their lease ends",
        "actors/scheduler/actor/expiry.py",
        '        if lease.kind == "fired" and live(token):',
        "        if False:",
    ),
)

CONTROL = Mutant("nothing is broken", "pyproject.toml", 'name = "tocsin"', 'name = "tocsin"')


def caught(mutant: Mutant, seeds: int) -> tuple[str, str] | None:
    """The first test that failed and why; None if the simulation noticed nothing."""
    with tempfile.TemporaryDirectory() as made:
        broken_copy(mutant, Path(made))
        run = run_tests(Path(made), [mutant.tests, "--seeds", str(seeds)], LIMIT_S)
    if run.code == 0:
        return None
    if run.failed is None:
        raise click.ClickException(f"{mutant.name}: the run itself failed\n{run.said[-2000:]}")
    return run.failed[0], run.failed[1][:90]


@click.command()
@click.option("--seeds", default=60, show_default=True, help="Seeds per mutant.")
@click.option("--only", default="", help="Mutants whose name holds this.")
@click.option("--first", type=int, help="Only the first so many.")
def main(seeds: int, only: str, first: int | None) -> None:
    """Break one rule at a time; exit 1 if the simulation misses one."""
    chosen = [mutant for mutant in MUTANTS if only in mutant.name][:first]
    if not chosen:
        raise click.UsageError(f"no mutant's name holds {only!r}")
    if caught(CONTROL, 10) is not None:
        raise click.ClickException("the copy fails without any breakage: nothing below would mean anything")
    missed = 0
    for mutant in chosen:
        result = caught(mutant, max(seeds, mutant.seeds))
        missed += result is None
        verdict = "MISSED" if result is None else f"caught by {result[0]}  {result[1]}"
        click.echo(f"{mutant.name:<60} {verdict}")
    click.echo(f"{len(chosen) - missed} of {len(chosen)} mutants caught")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
