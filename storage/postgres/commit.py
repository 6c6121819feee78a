"""The writes of a commit as the parameters of its one statement, and the numbers that actors have in the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final
from uuid import UUID

from tocsin.storage.api import Unset
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.ownership.engine import Held, slot_of
from tocsin.storage.postgres.layout import NUMBER_BITS

MOST_REMEMBERED: Final = 200_000
"""So many numbers of actors are remembered; then all are forgotten, and read again where they are needed."""


class Numbers:
    """Numbers of actors, as far as this host has seen them. An actor keeps its number for ever.

    An actor that is not in the store gets a number by chance; the table refuses one that is taken. What is remembered
    of a slot is good while this host owns it, and forgotten when a commit is refused: the store may be an older one.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._known: dict[int, dict[str, int | None]] = {}
        self._count = 0

    def note(self, name: str, number: int | None) -> None:
        """Remember a number; None: the actor is not in the store."""
        if self._count >= MOST_REMEMBERED:
            self.forget_all()
        slot = self._known.setdefault(slot_of(name), {})
        self._count += name not in slot
        slot[name] = number

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Return the names of which it is not known whether they are in the store."""
        return [name for name in names if name not in self._known.get(slot_of(name), ())]

    def number(self, name: str) -> tuple[int, bool]:
        """Return the number of an actor, and whether it is a new one."""
        slot = slot_of(name)
        number = self._known.get(slot, {}).get(name)
        if number is not None:
            return number, False
        return slot << NUMBER_BITS | self._random.getrandbits(NUMBER_BITS), True

    def forget(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._count -= len(self._known.pop(slot, ()))

    def forget_all(self) -> None:
        self._known.clear()
        self._count = 0


def parameters(
    owner: UUID, held: Sequence[Held], writes: Sequence[ActorWrites], numbers: Mapping[str, tuple[int, bool]]
) -> list[Any]:
    """Return the parameters of the commit."""
    gone_of: list[int] = []
    gone: list[bytes] = []
    put_of: list[int] = []
    keys: list[bytes] = []
    values: list[bytes] = []
    woken: list[int] = []
    wakes: list[int | None] = []
    new: list[int] = []
    new_names: list[str] = []
    new_wakes: list[int | None] = []
    for one in writes:
        number, is_new = numbers[one.name]
        for key, value in one.rows.items():
            if value is None:
                gone_of.append(number)
                gone.append(key)
            else:
                put_of.append(number)
                keys.append(key)
                values.append(value)
        if is_new:
            new.append(number)
            new_names.append(one.name)
            new_wakes.append(None if isinstance(one.wake_at, Unset) else one.wake_at)
        elif not isinstance(one.wake_at, Unset):
            woken.append(number)
            wakes.append(one.wake_at)
    return [
        [one.slot for one in held], [one.epoch for one in held], [one.seq for one in held], owner,
        gone_of, gone, put_of, keys, values, woken, wakes, new, new_names, new_wakes,
    ]  # fmt: skip
