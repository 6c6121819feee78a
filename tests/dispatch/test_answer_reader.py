"""One reader for all transports: what it takes for an answer, in whatever pieces that comes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dispatch.raw_answers import CASES, LIMIT, Case
from tocsin.dispatch.answer_reader import AnswerReader


def read(raw: bytes, cuts: list[int]) -> AnswerReader:
    reader, start = AnswerReader(LIMIT), 0
    for end in [*sorted(cuts), len(raw)]:
        reader.feed(raw[start:end])
        start = end
    reader.eof()
    return reader


def check(case: Case, reader: AnswerReader) -> None:
    if case.body is None:
        assert reader.answer is None and reader.fault is not None and not reader.reusable
        return
    assert reader.fault is None and reader.answer is not None
    assert (reader.answer.status, reader.answer.body, reader.answer.cut) == (case.status, case.body, case.cut)
    assert dict(case.headers).items() <= reader.answer.headers.items()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_answer_is_the_same_in_one_piece_and_byte_by_byte(case: Case) -> None:
    check(case, read(case.raw, []))
    step = max(len(case.raw) // 2_000, 1)
    check(case, read(case.raw, list(range(0, len(case.raw), step))))


@given(st.sampled_from(list(CASES.values())), st.data())
@settings(max_examples=300, deadline=None)
def test_an_answer_is_the_same_in_any_pieces(case: Case, data: st.DataObject) -> None:
    check(case, read(case.raw, data.draw(st.lists(st.integers(0, len(case.raw)), max_size=6))))


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_no_bytes_break_the_reader(noise: bytes, cuts: list[int]) -> None:
    reader = read(b"HTTP/1.1 200 OK\r\n" + noise, cuts)

    assert reader.ended and (reader.answer is None) is (reader.fault is not None)


@pytest.mark.parametrize(
    ("name", "reusable"),
    [
        ("plain", True),
        ("no body", True),
        ("chunks", True),
        ("trailers", True),
        ("interim answers first", True),
        ("as long as the limit", True),
        ("longer than the limit", False),
        ("204 with a body", False),
        ("a body longer than it says", False),
        ("until the end", False),
        ("of HTTP/1.0", False),
        ("chunks and a length", False),
    ],
)
def test_a_connection_is_used_again_only_where_nothing_of_the_answer_can_follow(name: str, reusable: bool) -> None:
    assert read(CASES[name].raw, []).reusable is reusable


@pytest.mark.parametrize("said", [b"close", b"Close", b"x, close", b"keep-alive, close"])
def test_a_receiver_that_closes_says_so(said: bytes) -> None:
    assert not read(b"HTTP/1.1 204 No Content\r\nconnection: %b\r\n\r\n" % said, []).reusable


def test_an_old_receiver_may_keep_its_connection() -> None:
    assert read(b"HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 0\r\n\r\n", []).reusable


def test_bytes_after_the_end_spoil_the_connection() -> None:
    reader = read(CASES["plain"].raw, [])
    reader.feed(b"x")

    assert reader.answer is not None and not reader.reusable


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.body is None])
def test_a_fault_says_what_is_wrong_and_is_short(case: Case) -> None:
    fault = read(case.raw, []).fault

    assert fault is not None and 20 < len(fault) < 250


def test_a_body_is_held_up_to_its_limit_only() -> None:
    reader = AnswerReader(LIMIT)
    reader.feed(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(1_000):
        reader.feed(b"x" * 65_536)

    assert reader.answer is not None and reader.answer.cut and len(reader.answer.body) == LIMIT
    assert len(reader._data) == 0
