"""Say in words how an origin of a host is: that it is away, is reached again, or cools."""

from __future__ import annotations

from collections.abc import Iterator

from tocsin.actors.scheduler.inflight.circuit import PROBE_EVERY_S, Broken
from tocsin.actors.scheduler.inflight.origins import Gate
from tocsin.actors.scheduler.model import health
from tocsin.actors.scheduler.model.origin_records import OriginStatus
from tocsin.dispatch.durations import span


def in_words(gate: Gate, now_ms: int) -> str | None:
    """Say why the circuit is open; None: it is closed."""
    broken, reached_at = gate.circuit.broken, gate.circuit.reached_at
    if broken is None:
        return None
    if broken.code != health.ORIGIN_UNREACHABLE or reached_at is None:
        return f"{what_fails(gate, broken)}: {broken.message}"
    waited = span(max(0, now_ms - reached_at))
    again = f"the origin {gate.shown} is reached again"
    return f"{again}, and its first answer is waited for since {waited} (before: {broken.message})"


def what_fails(gate: Gate, broken: Broken) -> str:
    if broken.code == health.ORIGIN_UNREACHABLE:
        return f"the origin {gate.shown} cannot be reached"
    return "callbacks cannot be sent" + (f" to the origin {gate.name}" if gate.name else "")


def cools(gate: Gate, now_ms: int) -> str | None:
    """Say for how long the origin still cools; None: it does not."""
    until = gate.permits.cools_until
    if until is None:
        return None
    return f"the origin {gate.shown} asked for no callbacks for {span(max(until - now_ms, 0) + 999)} more"


def standing(gate: Gate, in_flight: int, limit: int, now_ms: int) -> OriginStatus:
    """Say how an origin is; `in_flight`, `limit`: lanes to it of one scheduler."""
    said, broken = cools(gate, now_ms), gate.circuit.broken
    if said is not None:
        return OriginStatus(gate.name, "cooling", in_flight, limit, said, until=gate.permits.cools_until)
    if broken is not None:
        return OriginStatus(gate.name, "away", in_flight, limit, in_words(gate, now_ms), broken.since)
    return OriginStatus(gate.name, "ready", in_flight, limit)


def causes(gate: Gate, now_ms: int) -> Iterator[health.Cause]:
    """Say what is wrong with an origin."""
    broken = gate.circuit.broken
    if broken is not None:
        said = f"{in_words(gate, now_ms)}; callbacks wait, and one every {PROBE_EVERY_S:.0f} s is tried"
        yield health.Cause(broken.code, said, broken.since)
    if (cooling := cools(gate, now_ms)) is not None:
        yield health.Cause(health.ORIGIN_COOLING, f"{cooling}; they wait until then")
