"""Rules that say to which of several stores an instance belongs. No name matches rules of two stores."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from tocsin.errors import SettingsError

DEFAULT: Final = "default"
"""The store of instances that match no pattern, where there is one of this name and no rule says otherwise."""
REFUSE: Final = "refuse"
"""The word in place of a store's name: such instances are refused."""
REST: Final = "*"
"""The pattern of all that no other one matches."""
_STORE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_PATTERN: Final = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9_.:*-]{0,127}", re.ASCII)
_OWN: Final = "tocsin-"
"""How the kinds begin of the actors that a host has for itself."""


def instance_of(actor: str) -> str | None:
    """Return the name by which an actor is assigned; None for the host's own actors, which are in the first store."""
    kind, _, name = actor.partition("/")
    return None if kind.startswith(_OWN) else name


@dataclass(frozen=True, slots=True)
class Rules:
    """The stores, the first of which has the host's own actors, and the patterns of the instances of each."""

    stores: tuple[str, ...]
    patterns: Mapping[str, str]
    """The store of each pattern, or `refuse`."""
    rest: str
    """The store of all other instances, or `refuse`."""
    _compiled: list[tuple[re.Pattern[str], str]] = field(default_factory=list, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._compiled.extend((_regex(pattern), store) for pattern, store in self.patterns.items())

    @classmethod
    def of(cls, stores: Collection[str], residency: Mapping[str, str]) -> Rules:
        """Make the rules of these stores. SettingsError names what is wrong, with an instance that shows it."""
        if not isinstance(residency, Mapping):
            raise SettingsError(
                f'residency must say which store each pattern belongs to, like {{"eu-*": "eu"}}, not {residency!r:.100}'
            )
        for store in stores:
            if not isinstance(store, str) or not _STORE.fullmatch(store) or store == REFUSE:
                raise SettingsError(
                    f"a store must have a name that matches {_STORE.pattern} and is not {REFUSE!r}, not {store!r:.100}"
                )
        for pattern, store in residency.items():
            _check(pattern, store, stores)
        named = {pattern: store for pattern, store in residency.items() if pattern != REST}
        _check_apart(named)
        rest = residency.get(REST, DEFAULT if DEFAULT in stores else REFUSE)
        first = [DEFAULT] if DEFAULT in stores else []
        return cls((*first, *(store for store in stores if store not in first)), named, rest)

    def store_of(self, instance: str) -> str:
        """Return the name of an instance's store, or `refuse`."""
        return next((store for regex, store in self._compiled if regex.fullmatch(instance)), self.rest)

    def written(self, own: str) -> bytes:
        """Return the rules as the store `own` keeps them."""
        kept = {"store": own, "stores": self.stores, "patterns": dict(sorted(self.patterns.items())), "rest": self.rest}
        return json.dumps(kept, separators=(",", ":")).encode()

    @property
    def mark(self) -> str:
        """Return what tells these rules from others, for the name of a host."""
        return f"rules-{blake2b(self.written(''), digest_size=4).hexdigest()}"

    def in_words(self) -> str:
        """Return the rules as they are configured."""
        shown = ", ".join(f"{pattern} = {store}" for pattern, store in sorted(self.patterns.items()))
        return f"{shown}, {REST} = {self.rest}" if shown else f"{REST} = {self.rest}"


@dataclass(frozen=True, slots=True)
class Kept:
    """The rules that a store was last used with, and the name that it had in them."""

    store: str
    rules: Rules

    @classmethod
    def read(cls, raw: bytes) -> Kept:
        said: dict[str, Any] = json.loads(raw)
        return cls(said["store"], Rules(tuple(said["stores"]), said["patterns"], said["rest"]))


def _check(pattern: object, store: object, stores: Collection[str]) -> None:
    if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
        raise SettingsError(
            f"residency: a pattern is the name of an instance in which * stands for any text, not {pattern!r:.100}"
        )
    if store != REFUSE and store not in stores:
        known = ", ".join(sorted(stores))
        raise SettingsError(
            f"residency: {pattern} names the store {store!r:.100}, which is not among the stores ({known}); to accept "
            f"no such instance, write {REFUSE}"
        )


def _check_apart(patterns: Mapping[str, str]) -> None:
    """Refuse two patterns that one name matches, and which lead to different stores."""
    seen: list[tuple[str, str]] = []
    for pattern, store in patterns.items():
        for earlier, other in seen:
            if store != other and (both := common(earlier, pattern)) is not None:
                raise SettingsError(
                    f"residency: {earlier} ({other}) and {pattern} ({store}) both match {both!r}: write patterns that "
                    "no name can match two of"
                )
        seen.append((pattern, store))


def common(one: str, other: str) -> str | None:
    """Return a name that both patterns match; None if there is none."""
    begin = (0, 0, "x" if one[0] == other[0] == REST else "")
    waiting, seen = deque([begin]), {begin[:2]}
    while waiting:
        at, there, name = waiting.popleft()
        if at == len(one) and there == len(other):
            return name
        for step in _steps(one[at : at + 1], other[there : there + 1]):
            ahead = (at + step[0], there + step[1])
            if ahead not in seen:
                seen.add(ahead)
                waiting.append((*ahead, name + step[2]))
    return None


def _steps(one: str, other: str) -> list[tuple[int, int, str]]:
    """Return by how much each of two patterns goes on, and by which character."""
    steps: list[tuple[int, int, str]] = []
    if one == REST:
        steps.append((1, 0, ""))
        if other not in ("", REST):
            steps.append((0, 1, other))
    if other == REST:
        steps.append((0, 1, ""))
        if one not in ("", REST):
            steps.append((1, 0, one))
    elif one and one == other:
        steps.append((1, 1, one))
    return steps


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split(REST))), re.ASCII | re.DOTALL)
