"""The jobs of the demo, and the expected outcome: a spread of plain jobs, a pool that lets two run at once, a job
that fails twice before it succeeds, one that never does, chains that a worker pulls, and a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

PLAIN: Final = 40
POOLED: Final = 10
POOL: Final = "stripe"
POOL_CAP: Final = 2
FLAKY_FAILS: Final = 2
DOOMED_RETRIES: Final = 2
DOOMED_PATH: Final = "exports:broken"
QUEUE: Final = "reports"
CHAINS: Final = 4
CHAIN_BUILD: Final = "reports:render"
CHAIN_MAIL: Final = "reports:mail"
BEAT: Final = "heartbeat"
BEAT_MS: Final = 1_000
BEAT_DEFINITION: Final[Mapping[str, Any]] = {
    "everyMs": BEAT_MS,
    "functionPath": "health:beat",
    "args": {"takeMs": 5},
    "overlap": "allow",
    "misfire": "all",
}
"""Options under which every slot becomes a job, however busy the machine is."""
LEAD_MS: Final = 300
"""Time from the call to the first due instant, so that no job is late because it was scheduled late."""
PLAIN_PATHS: Final = ("invoices:send", "emails:welcome", "carts:remind", "reports:build")


@dataclass(frozen=True, slots=True)
class Plan:
    """`jobs` are bodies for POST /schedule/batch; the rest is what the demo checks at the end."""

    jobs: Sequence[dict[str, Any]]
    delivered: int = PLAIN + POOLED + 1
    retried: int = FLAKY_FAILS + DOOMED_RETRIES
    dead: int = 1
    pulled: int = 2 * CHAINS
    """Each chain has two links."""

    @property
    def total(self) -> int:
        """Return the number of all jobs, chained ones included."""
        return len(self.jobs) + CHAINS


def plan(now: int, spread_ms: int) -> Plan:
    """Return jobs due from shortly after `now` (epoch ms) over the next `spread_ms`."""
    start = now + LEAD_MS
    return Plan(
        [
            *(_plain(n, start + n * spread_ms // (PLAIN - 1)) for n in range(PLAIN)),
            *(_pooled(n, start + spread_ms // 4) for n in range(POOLED)),
            _flaky(start + spread_ms // 10),
            _doomed(start + spread_ms // 5),
            *(_chain(n, start + n * spread_ms // CHAINS) for n in range(CHAINS)),
        ]
    )


def _plain(n: int, due: int) -> dict[str, Any]:
    args = {"n": n, "takeMs": 5 + n % 4 * 15}
    return {"functionPath": PLAIN_PATHS[n % len(PLAIN_PATHS)], "scheduledFor": due, "args": args}


def _pooled(n: int, due: int) -> dict[str, Any]:
    return {
        "functionPath": "cards:charge",
        "scheduledFor": due,
        "args": {"n": n, "takeMs": 200},
        "pool": POOL,
        "maxConcurrency": POOL_CAP,
    }


def _chain(n: int, due: int) -> dict[str, Any]:
    mail = {"functionPath": CHAIN_MAIL, "queue": QUEUE, "args": {"n": n}}
    return {
        "functionPath": CHAIN_BUILD,
        "scheduledFor": due,
        "args": {"n": n, "takeMs": 50},
        "queue": QUEUE,
        "then": [mail],
    }


def _flaky(due: int) -> dict[str, Any]:
    return {
        "functionPath": "webhooks:flaky",
        "scheduledFor": due,
        "args": {"failFirst": FLAKY_FAILS},
        "retry": {"maxRetries": 5, "backoff": "exponential", "baseMs": 400},
    }


def _doomed(due: int) -> dict[str, Any]:
    return {
        "functionPath": DOOMED_PATH,
        "scheduledFor": due,
        "args": {"failFirst": 1_000},
        "retry": {"maxRetries": DOOMED_RETRIES, "backoff": "exponential", "baseMs": 500},
    }
