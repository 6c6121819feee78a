"""Names of actors: a kind (which class) and a name (which one), and their text form, the store's name."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b


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


def never_given_before(drawn: int, owner: str, actor: ActorId) -> str:
    """Return the name of an activation, from 64 random bits. A count would not do: a new or restored store counts from
    where another has been. The store's owner and the actor are mixed in, so that hosts with equal seeds differ, too."""
    return blake2b(f"{drawn:016x} {owner} {actor}".encode(), digest_size=8).hexdigest()
