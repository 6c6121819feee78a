"""Names of actors: a kind (which class) and a name (which one), and their text form, the store's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ActorId:
    """Kind and name of an actor. Text form `kind/name`; a kind holds no slash."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> ActorId:
        kind, _, name = text.partition("/")
        return cls(kind, name)
