"""`PoolHandle`: one pool of a scheduler, by name."""

from __future__ import annotations

from typing import Generic, Protocol, Self, TypeVar, Unpack

from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.pool_settings import PoolOptions

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class HoldsPools(Protocol[A_co]):
    """Sets and shows pools: a `Scheduler`, here or over HTTP. `A_co`: the pool as it is then, to be awaited or at
    once."""

    def pool(self, name: str) -> A_co:
        """Do as `Scheduler.pool`."""
        ...

    def set_pool(self, name: str, **settings: Unpack[PoolOptions]) -> A_co:
        """Do as `Scheduler.set_pool`."""
        ...


class PoolHandle(str, Generic[A]):
    """The name of a pool, so it may be given as `pool=`; and what can be done with it. Made by `Scheduler.pools`."""

    _jobs: HoldsPools[A]

    def __new__(cls, jobs: HoldsPools[A], name: str) -> Self:
        made = super().__new__(cls, arguments.plain_name(name, "pool"))
        made._jobs = jobs
        return made

    def __repr__(self) -> str:
        return f"PoolHandle({str(self)!r})"

    @property
    def name(self) -> str:
        """Return the name as a plain text."""
        return str(self)

    def status(self) -> A:
        """Return the pool as it is: cap, whether it is paused, jobs in it, and who holds its slots."""
        return self._jobs.pool(self.name)

    def set(self, **settings: Unpack[PoolOptions]) -> A:
        """Set its cap (`max_concurrency`, 0 holds all; jobs no longer change it), its `rate`, and all else that
        `Scheduler.set_pool` takes. Holders may always finish."""
        return self._jobs.set_pool(self.name, **settings)

    def pause(self) -> A:
        """Let none of its jobs start; those that run go on."""
        return self._jobs.set_pool(self.name, paused=True)

    def resume(self) -> A:
        """Let its jobs start again."""
        return self._jobs.set_pool(self.name, paused=False)
