"""A simulated crash, what it ends, and how bad things are just now."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tocsin.actors.actor_host import ActorHost
from tocsin.errors import InvalidInputError


@runtime_checkable
class Mortal(Protocol):
    """A store that can end with its process; `FaultyProvider` is one."""

    def die(self) -> None:
        """At this instant: what it had begun to write is on the disk or not, and nothing more will be."""
        ...

    async def end(self) -> None:
        """Whoever waits for it hears an error."""
        ...


async def crash(host: ActorHost) -> None:
    """End a host at this very instant, as `kill -9` ends its process: nothing is drained, stored or told.

    What it had begun to write is on the disk or not, by chance. Calls that wait for it raise an error, and so do later
    ones; a claim that waits gets nothing. Then open another host on the same `MemoryDisk`. Your own tasks that stand
    for parts of the dead process are yours to cancel; the receiver is another machine, and goes on.
    InvalidInputError unless its store can die, as a `FaultyProvider` can.
    """
    provider = host.runtime.provider
    if not isinstance(provider, Mortal):
        raise InvalidInputError(
            f"only a host whose store can die can crash: open it on a FaultyProvider, not a {type(provider).__name__}"
        )
    provider.die()
    await host._abandon()
    await provider.end()


class Process:
    """Give `is_alive` to the store and the network made for it: when it dies they fall silent, without a word."""

    def __init__(self) -> None:
        self.alive = True

    def is_alive(self) -> bool:
        return self.alive


class Weather:
    """The share of calls that go wrong; give `now` to the store and the network. A run may end its storm by
    setting `fault` to 0, to check that everything then ends well."""

    def __init__(self, fault: float) -> None:
        self.fault = fault

    def now(self) -> float:
        return self.fault
