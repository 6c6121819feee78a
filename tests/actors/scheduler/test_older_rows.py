"""Rows as earlier versions wrote them are read, and what is written now is read by programs that know less."""

from __future__ import annotations

import msgspec
import pytest

from tocsin.actors.scheduler.model.rows import HistRow, JobRow, LastError, Row, decode, encode


def test_jobs_stored_before_there_were_initiators_are_read() -> None:
    """Bytes as version 0.1.0 wrote them; and what is written now is read by a program that does not know the member."""
    labels = ("a",)
    new = JobRow("a", "1-1", 1_800_000_000_000, 1_700_000_000_000, b"{}", function_path="p", labels=labels)
    members = msgspec.msgpack.decode(encode(new))
    assert members[0] == 1 and members[18:20] == [["", ""], None]
    old = msgspec.msgpack.encode(members[:18])
    assert decode(JobRow, b"job/a", old) == new

    class Older(msgspec.Struct, frozen=True, array_like=True, tag=1):
        id: str
        incarnation: str

    assert msgspec.msgpack.decode(encode(new), type=Older) == Older("a", "1-1")


HIST_ADDED = [None, None, ["", ""]]
"""Code and data of an error, then what ran in which pool."""


@pytest.mark.parametrize(
    ("new", "added"),
    [(LastError(1, "boom", 500), [None, None]), (HistRow("failed", 1, 2, 3, 2, "7.1.x", 500, "boom"), HIST_ADDED)],
    ids=["error", "history"],
)
def test_failures_stored_before_they_had_codes_are_read(new: Row, added: list[object]) -> None:
    members = msgspec.msgpack.decode(encode(new))
    assert members[-len(added) :] == added
    assert decode(type(new), b"a/key", msgspec.msgpack.encode(members[: -len(added)])) == new
