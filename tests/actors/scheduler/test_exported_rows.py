"""Every row comes back from its line as it was, whatever it holds."""

from __future__ import annotations

import json
import types
from random import Random
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.actors.scheduler.model import rows
from tocsin.actors.scheduler.model.row_kinds import FAMILIES, SINGLE
from tocsin.actors.scheduler.transfer.importing import copied_names
from tocsin.actors.scheduler.transfer.named_rows import line_of, row_of
from tocsin.dispatch.retry import Retry
from tocsin.errors import InvalidInputError

KINDS = {family + b"/": kind for family, (_, kind) in FAMILIES.items()} | SINGLE
TEXTS = st.text(max_size=8)
BYTES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([
        b"null", b"{}", b'{"a": 1.50}', b"[1e400]", b" 1", b'"\\ud800"', b'{\n}', b"true ", b"1234567890123456789012",
    ]),
    st.recursive(st.none() | st.integers() | TEXTS, lambda more: st.lists(more, max_size=2), max_leaves=4).map(
        msgspec.json.encode
    ),
)  # fmt: skip


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Anything of a type."""
    args = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of(*map(values, args))
    if get_origin(hint) is tuple:
        if args[-1] is ...:
            return st.lists(values(args[0]), max_size=3).map(tuple)
        return st.tuples(*map(values, args))
    if get_origin(hint) is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=3)
    if hint is Retry:
        return st.builds(Retry, max_retries=st.integers(0, 100), jitter=st.sampled_from([0, 0.25, 1]))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return built(hint)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(2**53), 2**53), str: TEXTS, bool: st.booleans(), bytes: BYTES, type(None): st.none(),
    }  # fmt: skip
    return simple[hint]


def built(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: values(hints[name]) for name in kind.__struct_fields__})


@pytest.mark.parametrize("key", [key for key, kind in KINDS.items() if kind is not None], ids=lambda key: key.decode())
@settings(max_examples=25)
@given(st.data())
def test_a_row_of_each_kind_comes_back_from_its_line(key: bytes, data: st.DataObject) -> None:
    row = data.draw(built(KINDS[key]))
    key = key + b"a" if key.endswith(b"/") else key
    value = rows.encode(row)

    line = line_of(key, value)

    assert row_of(line) == (key, value)
    assert "row" in json.loads(line)
    assert line.count(b"\n") == 1


@given(st.integers(), st.integers())
def test_a_copy_gets_other_names_that_stay_apart_and_keeps_what_has_none(seed: int, other: int) -> None:
    names, others = copied_names(Random(seed)), copied_names(Random(other))
    known = ["5b1e09c4d27fa836-1", "5b1e09c4d27fa836-2", "a-1", "7-1"]

    assert names("") == ""
    assert [*map(names, known)] == [*map(names, known)]
    assert len({*known, *map(names, known)}) == 2 * len(known)
    assert seed == other or not {*map(names, known)} & {*map(others, known)}


@given(st.binary(min_size=1, max_size=20), st.binary(max_size=20))
def test_bytes_of_any_other_row_come_back(key: bytes, value: bytes) -> None:
    key = b"x" + key
    assert row_of(line_of(key, value)) == (key, value)


def test_a_row_that_an_older_program_wrote_has_the_defaults_of_what_it_lacks() -> None:
    older = msgspec.msgpack.encode([1, 7, 1])
    line = line_of(b"at/a", older)

    assert json.loads(line) == {"key": "at/a", "row": {"nextAt": 7, "attempt": 1}}
    assert row_of(line)[1] == rows.encode(rows.AtRow(7, 1))


def test_a_row_that_a_newer_program_wrote_comes_back_with_what_this_one_does_not_know() -> None:
    newer = msgspec.msgpack.encode([*msgspec.msgpack.decode(rows.encode(rows.PoolRow(3))), "more"])
    line = line_of(b"pool/p", newer)

    assert "base64" in json.loads(line)
    assert row_of(line) == (b"pool/p", newer)


@pytest.mark.parametrize(
    "line",
    [
        b"{}", b"[]", b'{"key": 5}', b'{"key": "a", "keyBase64": "YQ=="}', b'{"key": "pool/p", "row": {}}',
        b'{"key": "a\\ud800"}',
        b'{"key": "pool/p", "row": {"cap": "x"}}', b'{"key": "pool/p", "row": {"cap": 1, "colour": 2}}',
        b'{"key": "u/x", "row": {}}',
        b'{"key": "a", "base64": "?"}', b'{"key": "dead/a", "row": {"reason": "r", "parkedAt": 1, "at": []}}', b"\xff",
    ],
)  # fmt: skip
def test_what_is_no_row_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidInputError):
        row_of(line)
