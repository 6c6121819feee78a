"""Bodies of requests about schedules. As in `wire`, scalars stay as they came, and the checks of Python hold."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from tocsin.actors.http import shapes
from tocsin.actors.http.shapes import Schema, shape
from tocsin.actors.http.wire import Request, Scalar
from tocsin.actors.http.wire_jobs import OptionsRequest
from tocsin.actors.scheduler.schedules.definition import MAX_SET


class RuleRequest(OptionsRequest, frozen=True, kw_only=True):
    """A rule, and what it makes of its slots."""

    rules: ClassVar[tuple[Schema, ...]] = (
        shapes.exactly_one_of(cron="string", everyMs="integer", at="integer"),
        *OptionsRequest.rules,
    )
    no_options: ClassVar[frozenset[str]] = OptionsRequest.no_options | {"paused", "revision"}

    cron: Annotated[Scalar, shape(shapes.CRON, "Five fields, or six with seconds first. This, everyMs or at.")] = None
    every_ms: Annotated[Scalar, shape(shapes.EVERY, "So often, ms, from when the rule was put. Instead of cron.")] = (
        None
    )
    at: Annotated[Scalar, shape(shapes.INSTANT, "Once at this instant, epoch ms. Instead of cron.")] = None
    timezone: Annotated[Scalar, shape(shapes.TIMEZONE, "An IANA name: whose clock cron is read on.")] = None
    expires_after_ms: Annotated[
        Scalar, shape(shapes.EVERY, "An occurrence that still waits so long after it was due is dropped, ms.")
    ] = None
    misfire: Annotated[
        Scalar,
        shape(
            shapes.MISFIRE,
            "Slots seen later than graceMs: skip them; one job for the newest; or a job for all of the newest "
            "catchUpLimit.",
        ),
    ] = None
    grace_ms: Annotated[Scalar, shape(shapes.GRACE, "From when on a slot is late, ms.")] = None
    catch_up_limit: Annotated[
        Scalar | msgspec.UnsetType, shape(shapes.CATCH_UP, "For misfire all: at most so many; null is no limit.")
    ] = msgspec.UNSET
    overlap: Annotated[
        Scalar,
        shape(
            shapes.OVERLAP,
            "A slot that comes while an occurrence runs or retries: skip it; hold one back until that ends; or allow.",
        ),
    ] = None
    jitter_ms: Annotated[
        Scalar, shape(shapes.JITTER_MS, "Every slot starts later by an offset below this, ms, the same each time.")
    ] = None
    paused: Annotated[Scalar, shape(shapes.FLAG, "True: its slots pass as skipped. Left out: as it is.")] = None


class DefinitionRequest(RuleRequest, frozen=True, kw_only=True):
    """One schedule. `null` is the same as left out, but for `args`, kept byte for byte, and `catchUpLimit`. What is
    left out has its default, but for `paused`, which stays as it is."""

    revision: Annotated[
        Scalar, shape(shapes.REVISION, "The one that was read, 0 for none; 409 if it is not the latest any more.")
    ] = None


class OwnedRequest(RuleRequest, frozen=True, kw_only=True):
    """One schedule of an owner's set, under the owner's name for it."""

    name: Annotated[Scalar, shape(shapes.OWNED_NAME, "Its name in the set.", needed=True)] = None
    no_options: ClassVar[frozenset[str]] = RuleRequest.no_options | {"name"}


class RegisterRequest(Request, frozen=True, kw_only=True):
    """The whole set of an owner."""

    schedules: Annotated[
        list[msgspec.Raw],
        shape(
            {
                "type": "array", "maxItems": MAX_SET,
                "items": {"$ref": "#/components/schemas/OwnedRequest"},
            },
            "All there are, put in one commit or not at all.",
            needed=True,
        ),
    ]  # fmt: skip
    prune: Annotated[
        bool | None, shape(shapes.FLAG, "True: the owner's names outside the set are removed, not reported.")
    ] = None


class RevisionRequest(Request, frozen=True, kw_only=True):
    """Nothing, or which revision is meant."""

    revision: Annotated[
        Scalar, shape(shapes.REVISION, "The one that was read; 409 if it is not the latest any more.")
    ] = None


class TriggerRequest(Request, frozen=True, kw_only=True):
    """Nothing, or a key that makes this happen once."""

    request_key: Annotated[
        Scalar, shape(shapes.REQUEST_KEY, "The same key again answers the same occurrence, and makes none.")
    ] = None


class BackfillRequest(Request, frozen=True, kw_only=True):
    """Which slots of the past are to run, and how fast."""

    start: Annotated[Scalar, shape(shapes.INSTANT, "The slots from this instant on, epoch ms.", needed=True)] = None
    end: Annotated[Scalar, shape(shapes.INSTANT, "The slots before this instant, epoch ms.", needed=True)] = None
    rate_per_second: Annotated[Scalar, shape(shapes.RATE, "So many are started a second.")] = None
    dry_run: Annotated[bool | None, shape(shapes.FLAG, "True: say what would be run, and run nothing.")] = None
