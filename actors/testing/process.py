"""A simulated crash, the process that it ends, and the share of calls that fail."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tocsin.actors.actor_host import ActorHost
from tocsin.errors import InvalidInputError


@runtime_checkable
class Mortal(Protocol):
    """A store that can end with its process; `FaultyProvider` is one."""

    def die(self) -> None:
        """End at this instant: a write that had begun is on the disk or not, and nothing is written any more."""
        ...

    async def end(self) -> None:
        """Answer whoever still waits with an error."""
        ...


async def crash(host: ActorHost) -> None:
    """End a host at this instant, as `kill -9` ends its process: nothing is drained, stored or answered.

    A write that had begun is on the disk or not, by chance. Calls that wait for the host raise an error, and so do
    later ones; a claim that waits gets nothing. Then open another host on the same `MemoryDisk`. Cancel your own tasks
    that stand for parts of the dead process; the receiver is another machine, and goes on.
    Raises InvalidInputError unless the host's store can die, as a `FaultyProvider` can.
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
    """A simulated process. Give `is_alive` to its store and its network: when it dies they answer nothing any more."""

    def __init__(self) -> None:
        self.alive = True

    def is_alive(self) -> bool:
        return self.alive


class Weather:
    """The share of calls that fail; give `now` to the store and the network. A run may set `fault` to 0 to check that
    everything ends well afterwards."""

    def __init__(self, fault: float) -> None:
        self.fault = fault

    def now(self) -> float:
        return self.fault
