"""W3C Trace Context: the trace that a request belongs to, as its headers say it and as jobs keep it."""

from __future__ import annotations

import re
from random import Random
from typing import Final

Trace = tuple[str, str]
"""`traceparent` and `tracestate` ("" without one), both valid."""

LENGTH: Final = 55
STATE_MEMBERS, STATE_LENGTH, LONG_MEMBER = 32, 512, 128
"""A longer `tracestate` loses members: those above `LONG_MEMBER` characters first, then the last ones."""
KNOWN_FLAGS: Final = 0x03
"""`sampled` and `random-trace-id`. Others mean nothing yet, and must not be passed on."""
NO_TRACE, NO_SPAN = "0" * 32, "0" * 16
ONE_TRACE, ONE_SPAN = "1".zfill(32), "1".zfill(16)
_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)
_MEMBER: Final = re.compile(
    r"(?P<key>[a-z0-9][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]",
    re.ASCII,
)


def parse(traceparent: object, tracestate: object = None) -> Trace | None:
    """Read the two as headers hold them. None for a `traceparent` that is not valid: it is ignored, with its state, as
    the standard says. A `tracestate` that is not valid is ignored alone."""
    if not isinstance(traceparent, str):
        return None
    text = traceparent.strip(" \t")
    found = _PARENT.match(text)
    if found is None:
        return None
    version, trace, span, flags = found.groups()
    if version == "ff" or trace == NO_TRACE or span == NO_SPAN:
        return None
    if len(text) != LENGTH and (version == "00" or text[LENGTH] != "-"):
        return None  # later versions may say more after a dash
    return f"00-{trace}-{span}-{int(flags, 16) & KNOWN_FLAGS:02x}", state_of(tracestate)


def state_of(given: object) -> str:
    """Return a valid `tracestate` in the shortest form, or ""."""
    if not isinstance(given, str):
        return ""
    members = [one for each in given.split(",") if (one := each.strip(" \t"))]
    found = [_MEMBER.fullmatch(one) for one in members]
    if len(members) > STATE_MEMBERS or not all(found) or len({one["key"] for one in found if one}) < len(members):
        return ""
    if sum(map(len, members)) + len(members) - 1 > STATE_LENGTH:
        members = [one for one in members if len(one) <= LONG_MEMBER]
    while sum(map(len, members)) + len(members) - 1 > STATE_LENGTH:
        del members[-1]
    return ",".join(members)


def child(trace: Trace, random: Random) -> Trace:
    """Return the same trace, with a new span in place of the one that it came from."""
    parent, state = trace
    span = random.randbytes(8).hex()
    return f"{parent[:36]}{ONE_SPAN if span == NO_SPAN else span}{parent[52:]}", state
