"""The ledger of the clusters' campaigns finds each promise broken that it is there for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.processes.cluster_ledger import LEASE_MARGIN_S, Delivery, Disruption, Request, Verdict

BEGAN = 1_000.0
BOUNDS = {"kill": 12.0, "drain": 1.0}


def asked(n: int, at: float, delay_s: float = 0.0) -> Request:
    return Request(n, f"actor-{n % 3}", delay_s, [(at, 200)])


def came(n: int, at: float) -> Delivery:
    return Delivery(at, f"job-{n}:1", n, f"actor-{n % 3}", 1, 1, at + 10, "127.0.0.1")


def judged(
    requests: Sequence[Request], deliveries: Sequence[Delivery], *disruptions: tuple[float, str], false: int = 0
) -> list[str]:
    happened = [Disruption(at, kind, 0, at) for at, kind in disruptions]
    return Verdict(requests, deliveries, happened, BOUNDS, false).judge().broken


REQUESTS = [asked(n, BEGAN + n) for n in range(6)]
DELIVERIES = [came(n, BEGAN + n + 0.01) for n in range(6)]


def test_a_run_in_which_all_is_kept_breaks_nothing() -> None:
    again = replace(DELIVERIES[2], at=DELIVERIES[2].lease_end + 0.1, attempt=2, epoch=2)

    assert judged(REQUESTS, [*DELIVERIES, again], (BEGAN + 1.5, "kill")) == []


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("1 accepted requests were lost: [5]", lambda came: came[:5]),
        ("1 jobs were delivered twice inside one lease: [2]", lambda came: [*came, replace(came[2], at=BEGAN + 3)]),
        ("1 requests became several jobs: [2]", lambda came: [*came, replace(came[2], at=BEGAN + 90, job="other:1")]),
        ("1 jobs came before they were due: [3]", lambda came: [*came[:3], replace(came[3], at=BEGAN + 2), *came[4:]]),
        ("kill: a gap of 13.00 s, over 12 s", lambda came: [*came[:5], replace(came[5], at=BEGAN + 18)]),
    ],
)
def test_what_is_broken_is_said(words: str, change: Callable[[list[Delivery]], list[Delivery]]) -> None:
    assert judged(REQUESTS, change(DELIVERIES), (BEGAN + 4.8, "kill")) == [words]


def test_a_gap_belongs_to_what_went_wrong_when_the_job_was_due() -> None:
    late = [*DELIVERIES[:2], replace(DELIVERIES[2], at=BEGAN + 4), *DELIVERIES[3:]]

    assert judged(REQUESTS, late, (BEGAN + 1.5, "kill"), (BEGAN + 3.5, "drain")) == []
    assert judged(REQUESTS, late, (BEGAN + 1.5, "drain"), (BEGAN + 3.5, "kill")) == ["drain: a gap of 2.00 s, over 1 s"]


def test_a_job_that_a_dead_owner_had_leased_comes_within_its_lease() -> None:
    """It is no gap of its actor, which is served meanwhile."""
    second = replace(DELIVERIES[2], attempt=2, epoch=2)
    bound = LEASE_MARGIN_S + 10 + 12

    assert judged(REQUESTS, [*DELIVERIES[:2], replace(second, at=BEGAN + 20), *DELIVERIES[3:]], (BEGAN, "kill")) == []
    (broken,) = judged(REQUESTS, [*DELIVERIES[:2], replace(second, at=BEGAN + 50), *DELIVERIES[3:]], (BEGAN, "kill"))
    assert broken == f"a job whose owner died came 48.0 s late, over {bound:g} s"


def test_a_request_that_nobody_accepts_and_a_callback_that_is_not_ours_are_said() -> None:
    refused = Request(6, "actor-0", 0.0, [(BEGAN, None), (BEGAN + 60, 503)])

    assert judged([*REQUESTS, refused], DELIVERIES, false=2) == [
        "2 callbacks did not verify",
        "1 requests found no host that accepted them: [6]",
    ]
