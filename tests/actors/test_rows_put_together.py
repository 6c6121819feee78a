"""Rows that are put together obey the rules of those that are put one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tocsin.actors.runtime.overlay import CLOSED, EPOCH, ActorStorage, Layer
from tocsin.errors import InvalidInputError, TurnError

ROWS = {b"a": b"1", b"b": b"", b"c": b"333"}


def storage() -> ActorStorage:
    made = ActorStorage()
    made.layer = Layer(asyncio.current_task())
    return made


def written(layer: Layer) -> tuple[dict[bytes, bytes], set[bytes], int]:
    return layer.puts, layer.deletes, layer.size


@pytest.mark.anyio
async def test_they_leave_what_single_puts_leave() -> None:
    together, alone = storage(), storage()
    for one in (together, alone):
        one.put(b"a", b"older")
        one.delete(b"b")
        one.delete(b"z")
    together.put_many(ROWS)
    for key, value in ROWS.items():
        alone.put(key, value)

    assert written(together.layer) == written(alone.layer)
    together.put_many({})
    assert written(together.layer) == written(alone.layer)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ({b"a": b"1", EPOCH: b"9"}, TurnError, "the runtime's"),
        ({b"a": b"1", b"b": "text"}, InvalidInputError, "must be bytes, not str"),
        ({b"a": b"1", "b": b"2"}, InvalidInputError, "a key must be bytes, not str"),
        ({b"a": b"1", b"b": bytearray(b"2")}, InvalidInputError, "must be bytes, not bytearray"),
    ],
)
async def test_a_wrong_one_among_them_is_refused_as_a_single_one_is(
    rows: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        storage().put_many(rows)


@pytest.mark.anyio
async def test_they_are_put_in_a_turn_by_its_own_task_only() -> None:
    closed, of_another = ActorStorage(), ActorStorage()
    of_another.layer = Layer(object())
    for one in (closed, of_another):
        with pytest.raises(TurnError, match="outside a turn"):
            one.put_many(ROWS)
    assert not CLOSED.puts and not of_another.layer.puts
