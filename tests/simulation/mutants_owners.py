"""Breakages of the rules of who owns what in a shared store, for `mutants.py`."""

from __future__ import annotations

from tests.simulation.mutants_schedules import Mutant

TESTS = "tests/simulation/owners/test_owners.py"


def owners(name: str, file: str, old: str, new: str, seeds: int = 0) -> Mutant:
    return Mutant(f"owners: {name}", f"storage/{file}", old, new, seeds=seeds, tests=TESTS)


OWNERS = (
    owners(
        "a commit has no fence",
        "shared_disk.py",
        "            if (row := slots[one.slot]).owner == owner and row.epoch == one.epoch and row.seq == one.seq\n",
        "            if slots[one.slot] is not None\n",
    ),
    owners(
        "the fence does not compare owners and epochs",
        "shared_disk.py",
        "            if (row := slots[one.slot]).owner == owner and row.epoch == one.epoch and row.seq == one.seq\n",
        "            if slots[one.slot].seq == one.seq\n",
    ),
    owners(
        "the fence does not compare commit numbers",
        "shared_disk.py",
        "row.epoch == one.epoch and row.seq == one.seq\n",
        "row.epoch == one.epoch\n",
    ),
    owners(
        "slots of the living are taken",
        "shared_disk.py",
        "            if slot in self.locked or self._lives(row.owner):\n",
        "            if slot in self.locked or row.owner == host:\n",
    ),
    owners(
        "a host trusts its memory behind its deadline",
        "ownership/membership.py",
        "        return self.lease_runs and session\n",
        "        return session\n",
    ),
    owners(
        "the deadline counts from the answer",
        "ownership/membership.py",
        "        self._deadline = max(self._deadline, sent + slept + self._timing.ttl_s - self._timing.margin_s)\n",
        "        self._deadline = asyncio.get_running_loop().time() + self._timing.ttl_s * 3\n",
    ),
    owners(
        "whoever comes back from an outage judges others",
        "ownership/membership.py",
        "        return since is not None and asyncio.get_running_loop().time() - since >= seconds\n",
        "        return since is not None\n",
    ),
    owners(
        "one look at a session is enough",
        "ownership/keeper.py",
        " if now - since >= self._timing.second_look_s]",
        " if now >= since]",
    ),
    owners(
        "slots are released before those above have let go",
        "ownership/keeper.py",
        "            if not over.left:\n                return\n",
        "",
    ),
    owners(
        "a commit of unknown outcome failed",
        "ownership/commits.py",
        "                if await self._landed(sent, error):\n                    return self._bump(sent)\n"
        "                continue\n",
        "                raise StoreUnavailable('it broke off') from error\n",
    ),
    owners(
        "a commit of unknown outcome was done",
        "ownership/commits.py",
        "                if await self._landed(sent, error):\n",
        "                if True:\n",
    ),
    owners(
        "slots whose taking was not answered are left alone",
        "ownership/keeper.py",
        "        if strays:\n",
        "        if strays and not me:\n",
    ),
    owners(
        "what is older in the store than in memory is gone on with",
        "ownership/keeper.py",
        "row.epoch == said.epoch and row.seq >= said.seq\n",
        "row.epoch == said.epoch\n",
        seeds=200,
    ),
    owners(
        "who was declared dead keeps what it had",
        "ownership/membership.py",
        "            self._died(host)\n",
        "",
    ),
    owners(
        "the dead are not noticed without hints",
        "ownership/keeper.py",
        "        wait = self._timing.look_s\n",
        "        wait = 3_600.0\n",
    ),
    owners(
        "who drains takes its share again under a new id",
        "ownership/membership.py",
        "        if self.draining and state is HostState.UP:\n",
        "        if self.draining and not state:\n",
    ),
    owners(
        "hosts whose lease has ended are waited for",
        "ownership/keeper.py",
        "                dead += await self._engine.reap()\n",
        "                pass\n",
    ),
)
