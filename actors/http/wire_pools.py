"""Bodies of requests that set pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from tocsin.actors.http import shapes
from tocsin.actors.http.shapes import Schema, shape
from tocsin.actors.http.wire import Request, Scalar, whole
from tocsin.dispatch.rate import Rate


class RateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How many start in a time. In any time of `per` at most `limit` + `burst` do."""

    limit: Annotated[Scalar, shape(shapes.RATE_LIMIT, "So many starts, evenly spread.", needed=True)] = None
    per: Annotated[Scalar, shape(shapes.RATE_PER, 'In this time, 1 s to 1 d: "1s", "90s", "5m", "2h", "1d".')] = None
    burst: Annotated[Scalar, shape(shapes.RATE_BURST, "So many may start at once after a pause.")] = None

    def rate(self) -> Rate:
        given: dict[str, Any] = {"limit": whole(self.limit), "per": self.per, "burst": whole(self.burst)}
        return Rate(**{"limit": None, **{name: value for name, value in given.items() if value is not None}})


class PoolRequest(Request, frozen=True, kw_only=True):
    """Settings of a pool: at least one."""

    rules: ClassVar[tuple[Schema, ...]] = (
        shapes.at_least_one(
            maxConcurrency="integer",
            paused="boolean",
            rate=["object", "string"],
            coolOnRetryAfter="string",
            cooling="boolean",
            fair="boolean",
            weights="object",
            maxPerKey="integer",
        ),
    )

    name: Annotated[Scalar, shape(shapes.NAME, "The pool.", needed=True)] = None
    max_concurrency: Annotated[
        Scalar, shape(shapes.CAP, "How many of its jobs may run at once; 0 holds all. Jobs no longer change it.")
    ] = None
    paused: Annotated[Scalar, shape(shapes.FLAG, "True: start none of its jobs.")] = None
    rate: Annotated[
        RateRequest | Scalar,
        shape(
            shapes.RATE_OF_POOL,
            'How many of its jobs may start in a time; "none": as many as its cap lets. Jobs no longer change it.',
        ),
    ] = None
    cool_on_retry_after: Annotated[
        Scalar,
        shape(
            shapes.COOLS,
            "What an answer 429 or 503 with Retry-After holds back until then: only its own job, the pool, or the "
            "whole origin.",
        ),
    ] = None
    cooling: Annotated[Scalar, shape({"type": "boolean", "enum": [False]}, "False: it cools no longer.")] = None
    fair: Annotated[Scalar, shape(shapes.FLAG, "True: jobs with different shard keys have turns.")] = None
    weights: Annotated[
        dict[str, Scalar] | Scalar,
        shape(shapes.WEIGHTS, "How many turns a shard key has where others have one; replaces all that were set."),
    ] = None
    max_per_key: Annotated[
        Scalar, shape(shapes.PER_KEY, "How many jobs of one shard key may run at once; 0: no cap of its own.")
    ] = None

    def settings(self) -> Mapping[str, Any]:
        """Return what is given, by its name inside, for the checks."""
        weights = self.weights
        return {
            "max_concurrency": whole(self.max_concurrency),
            "paused": self.paused,
            "rate": self.rate.rate() if isinstance(self.rate, RateRequest) else self.rate,
            "cool_on_retry_after": self.cool_on_retry_after,
            "cooling": self.cooling,
            "fair": self.fair,
            "weights": {key: whole(one) for key, one in weights.items()} if isinstance(weights, dict) else weights,
            "max_per_key": whole(self.max_per_key),
        }
