"""The row of a pool that has a rate, or cools; and when its next job may start.

Tokens are counted in whole parts, so that nothing is rounded: with a rate of `limit` in `per` ms a token is `per`
parts, and `limit` parts come each ms.
"""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.model.flow_rows import PoolFlow
from tocsin.actors.scheduler.model.row import Row
from tocsin.dispatch.rate import Stored

COOLS_MOST_MS: Final = 3_600_000
"""As long as the longest Retry-After that counts."""
NO_COOLING: Final = 0


class RateRow(Row, frozen=True, array_like=True, tag=1):
    """`rate/<pool>`: written in the commit of the starts that spend its tokens, once for all of them. A pool with a
    rate and without this row has all of its tokens."""

    at: int
    """The instant up to which tokens have come."""
    credit: int
    """The tokens there were then, in parts."""
    cool_until: int = NO_COOLING
    """No job starts before this instant: a receiver asked to wait."""


def rate_key(pool: str) -> bytes:
    return b"rate/%b" % pool.encode()


def full(rate: Stored) -> int:
    """Return the parts of all tokens that may be spent at once."""
    return rate[2] * rate[1]


def most(rate: Stored) -> int:
    """Return the most parts that are kept: those of all tokens. Where that is one, also all but the last part of the
    next one: so nothing is lost where a turn comes late by less than the time of a token, and no two start at once."""
    return full(rate) if rate[2] > 1 else 2 * rate[1] - 1


def credit_at(rate: Stored, at: int, credit: int, now: int) -> int:
    """Return the parts there are at an instant."""
    return min(credit + max(now - at, 0) * rate[0], most(rate))


def next_token(rate: Stored, at: int, credit: int) -> int:
    """Return the instant from which there is a whole token."""
    return at + max(-(-(rate[1] - credit) // rate[0]), 0)


def opens_at(flow: PoolFlow | None, row: RateRow | None) -> int:
    """Return the instant from which the rate of a pool, and its cooling, let a job start; 0 if they never held one."""
    if flow is None or row is None:
        return 0
    token = 0 if flow.rate is None else next_token(flow.rate, row.at, row.credit)
    return max(token, cools_until(flow, row))


def cools_until(flow: PoolFlow | None, row: RateRow | None) -> int:
    """Return until when a pool cools; 0 if it does not."""
    return row.cool_until if flow is not None and row is not None and flow.cool == "pool" else NO_COOLING
