"""Trace contexts are read as W3C Trace Context says: what is not valid is ignored."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.dispatch.trace_context import Trace, child, parse, state_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (PARENT, PARENT),
        (f" \t{PARENT} ", PARENT),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"00-{TRACE}-{SPAN}-ff", f"00-{TRACE}-{SPAN}-03"),  # flags that mean nothing yet
        (f"cc-{TRACE}-{SPAN}-01", PARENT),  # later versions are read as this one
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be", PARENT),
    ],
)
def test_what_is_valid_is_kept_as_version_00(given: str, kept: str) -> None:
    assert parse(given) == (kept, "")


@pytest.mark.parametrize(
    "given",
    [
        None, b"x", 7, "", "00", PARENT[:-1], PARENT + "0", PARENT + "-00", PARENT.upper(), f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-0x", f"0-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.what-the-future-will-be", f"00-{TRACE[:-1]}\u0663-{SPAN}-01", PARENT + "\n",
    ],
)  # fmt: skip
def test_what_is_not_valid_is_none(given: object) -> None:
    assert parse(given, "a=1") is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, ""),
        ("", ""),
        ("a=1", "a=1"),
        (" a=1 ,\tb@c=2 ,, ", "a=1,b@c=2"),
        ("a=1,a=2", ""),
        ("a", ""),
        ("A=1", ""),
        ("a=1=2", ""),
        ("a=\u00e9", ""),
        (",".join(f"k{n}={n}" for n in range(32)), ",".join(f"k{n}={n}" for n in range(32))),
        (",".join(f"k{n}={n}" for n in range(33)), ""),
        ("long=" + "x" * 200 + ",a=" + "y" * 100 + ",b=" + "z" * 256, "a=" + "y" * 100),
        ("a=" + "x" * 120 + "," + "b=" + "x" * 120 + ",c=" + "x" * 120 + ",d=" + "x" * 120 + ",e=" + "x" * 120,
         "a=" + "x" * 120 + "," + "b=" + "x" * 120 + ",c=" + "x" * 120 + ",d=" + "x" * 120),
    ],
)  # fmt: skip
def test_a_state_is_kept_whole_shortened_or_not_at_all(given: object, kept: str) -> None:
    assert state_of(given) == kept
    assert parse(PARENT, given) == (PARENT, kept)


def test_a_parent_without_a_state_that_is_valid_is_kept() -> None:
    assert parse(PARENT, "not a state") == (PARENT, "")


@given(st.binary(min_size=24, max_size=24), st.integers(0, 255), st.integers())
def test_a_child_is_in_the_trace_and_a_span_of_its_own(ids: bytes, flags: int, seed: int) -> None:
    trace: Trace | None = parse(f"00-{ids[:16].hex()}-{ids[16:].hex()}-{flags:02x}", "a=1")
    if trace is None:
        return

    made = child(trace, Random(seed))

    assert parse(*made) == made
    assert made[0][:36] + made[0][52:] == trace[0][:36] + trace[0][52:]
    assert made[0] != trace[0] and made[1] == "a=1"


def test_a_span_of_zeros_is_replaced() -> None:
    class Zeros(Random):
        def randbytes(self, n: int) -> bytes:
            return bytes(n)

    assert child((PARENT, ""), Zeros())[0] == f"00-{TRACE}-{1:016x}-01"


@given(st.text(max_size=80), st.text(max_size=600))
def test_no_text_raises(parent: str, state: str) -> None:
    assert parse(parent) is None or parse(parse(parent)[0]) == parse(parent)  # type: ignore[index]
    assert state_of(state_of(state)) == state_of(state)
