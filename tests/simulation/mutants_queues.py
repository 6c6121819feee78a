"""Breakages of the rules of queues, chains and results, for `mutants.py`."""

from __future__ import annotations

from tests.simulation.mutants_schedules import Mutant

QUEUES = (
    Mutant(
        "queues: jobs are given before their leases are durable",
        "actors/scheduler/actor/end_of_turn.py",
        "            self._claims.mark_claimed(given)\n",
        "            self._claims.deliver(given, turn.began)\n            given.clear()\n",
    ),
    Mutant(
        "queues: what a worker that went away was given stays leased",
        "actors/scheduler/inflight/waiting_claims.py",
        "        if unwanted:\n            self.give_back",
        "        if late:\n            self.give_back",
    ),
    Mutant(
        "queues: what goes back does not stand in line again",
        "actors/scheduler/actor/pull.py",
        "        apply(turn, job, token, unsent(",
        "        turn.state.drop_lease(token)\n        continue\n        apply(turn, job, token, unsent(",
    ),
    Mutant(
        "queues: any lease settles a job that runs",
        "actors/scheduler/transitions/complete.py",
        "    held = [one for one in said if _is_held(turn, one)]\n",
        "    said = [replace(one, lease=turn.state.lease_of(one.id) or one.lease) for one in said]\n"
        "    held = [one for one in said if _is_held(turn, one)]\n",
        also=(
            (
                "actors/scheduler/transitions/complete.py",
                "import Sequence\n",
                "import Sequence\nfrom dataclasses import replace\n",
            ),
        ),
    ),
    Mutant(
        "queues: any lease settles a job that waits",
        "actors/scheduler/transitions/complete.py",
        "and said.ok and found.at.last_token == said.lease:",
        "and said.ok:",
    ),
    Mutant(
        "queues: a lost worker is not counted",
        "actors/scheduler/model/suspects.py",
        "    losses = at.losses + 1 if level == ALONE else",
        "    losses = at.losses if level == ALONE or True else",
    ),
    Mutant(
        "queues: a lost worker counts as a failure of the job",
        "actors/scheduler/transitions/job.py",
        "    if lease.kind in LOST:\n",
        '    if lease.kind == "fired":\n',
    ),
    Mutant(
        "queues: a job that must run alone goes to a worker that has others",
        "actors/scheduler/actor/pull.py",
        "        if level == ALONE:\n            return self._has_nothing\n",
        "",
        seeds=200,
    ),
    Mutant(
        "queues: a worker with a job that must run alone gets others",
        "actors/scheduler/actor/pull.py",
        "not (claim.worker and (claim.worker in alone or claim.worker in self._alone))",
        "True",
        seeds=400,
    ),
    Mutant(
        "queues: a worker gets as many suspects as there are",
        "actors/scheduler/actor/pull.py",
        "(not worker or share <= WORKER_SHARE)",
        "True",
    ),
    Mutant(
        "queues: each queue has the whole room of a pool",
        "actors/scheduler/transitions/claim.py",
        "            if left is not None:\n                room[head.bucket.line.pool] = left - 1\n",
        "",
    ),
    Mutant(
        "queues: jobs of workers hold no slots",
        "actors/scheduler/state/leases.py",
        "        if lease.pool:\n            self.lines.hold(lease.pool)\n",
        "        if lease.pool and lease.kind != PULLED:\n            self.lines.hold(lease.pool)\n",
    ),
    Mutant(
        "queues: who got nothing after all is forgotten",
        "actors/scheduler/inflight/waiting_claims.py",
        "                self._stand(claim, first=True)\n",
        "                pass\n",
    ),
    Mutant(
        "queues: a due job does not ring for those who wait",
        "actors/scheduler/actor/end_of_turn.py",
        "            pulled = again if full else state.lines.pulled.next_due(now)\n",
        "            pulled = again if full else None\n",
    ),
    Mutant(
        "queues: they have no turns",
        "actors/scheduler/state/ready_heap.py",
        "        self._turns[queue] = next(self._turn)\n        self._turns.move_to_end(queue)\n",
        "",
        seeds=300,
    ),
    Mutant(
        "chains: a failure starts what follows a success",
        "actors/scheduler/transitions/job.py",
        "    if said.ok:\n",
        "    if said.ok or said.error:\n",
    ),
    Mutant(
        "chains: late success forgets what follows",
        "actors/scheduler/transitions/settle.py",
        "    return start_after(turn, job, end, followers)\n",
        "    return 0\n",
        seeds=200,
    ),
    Mutant(
        "chains: what follows a callback is forgotten",
        "actors/scheduler/transitions/settle.py",
        "start_after(turn, job, decision, follow) if follow else 0\n",
        "0\n",
    ),
    Mutant(
        "chains: the result is not handed on",
        "actors/scheduler/transitions/chains.py",
        'one.then, result or b"", one.on_dead)\n',
        'one.then, b"", one.on_dead)\n',
    ),
    Mutant(
        "chains: workers are not told what the parent came to",
        "actors/scheduler/transitions/claim.py",
        "parent_result=blob.parent_result)",
        'parent_result=b"")',
    ),
    Mutant(
        "chains: dead letters count as pending",
        "actors/scheduler/state/scheduler_state.py",
        "        dead = self.put_letter(job, dead)\n        self._count_paths(job, -1)\n",
        "        dead = self.put_letter(job, dead)\n",
    ),
    Mutant(
        "results: nobody is told that a job has ended",
        "actors/scheduler/actor/end_of_turn.py",
        "            turn.ctx.after_commit(self._waiters.tell, ended)\n",
        "            pass\n",
    ),
    Mutant(
        "results: of a dead job nobody is told",
        "actors/scheduler/state/scheduler_state.py",
        "                self.following = (*self.following, (job, dead))\n        self.note_end(job)\n",
        "                self.following = (*self.following, (job, dead))\n",
        seeds=300,
    ),
)
