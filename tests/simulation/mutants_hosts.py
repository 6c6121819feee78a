"""Breakages of what several hosts of a store owe each other, for `mutants.py`."""

from __future__ import annotations

from tests.simulation.mutants_schedules import Mutant

TESTS = "tests/simulation/cluster/test_cluster.py"


def hosts(name: str, file: str, old: str, new: str, seeds: int = 160) -> Mutant:
    return Mutant(f"hosts: {name}", file, old, new, seeds=seeds, tests=TESTS)


HOSTS = (
    hosts(
        "a call that comes twice is done twice",
        "actors/runtime/done.py",
        "    if kept is not None:\n",
        "    if kept is not None and not kept:\n",
        seeds=320,
    ),
    hosts(
        "a host goes by its own clock",
        "actors/runtime/store_clock.py",
        "        return shown - self.ahead_ms\n",
        "        return shown\n",
    ),
    hosts(
        "leases of other hosts count as never sent",
        "actors/scheduler/actor/expiry.py",
        'if lease.kind == "fired" and lease.host == turn.owner and not live(token)\n',
        'if lease.kind == "fired" and not live(token)\n',
    ),
    hosts(
        "mail is never looked for",
        "actors/cluster/clerk.py",
        "AT_ONCE: Final = 32\n",
        "AT_ONCE: Final = 0\n",
    ),
    hosts(
        "what comes for an actor that leaves is taken",
        "actors/runtime/activation.py",
        "        if self._leaves is not None:\n            raise self._leaves\n",
        "",
    ),
)
