"""A network of its own for one process on this machine, whose links can be cut for real. Needs root and `ip`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

_NUMBERS = count(os.getpid() % 200)


@dataclass(frozen=True)
class Link:
    """A cable between this machine and the network. `here` and `there` are the addresses of its ends."""

    name: str
    here: str
    there: str

    def cut(self) -> None:
        """Nothing passes any more, and neither end is told."""
        _ip("link", "set", self.name, "down")

    def mend(self) -> None:
        _ip("link", "set", self.name, "up")


@dataclass(frozen=True)
class Network:
    """Its links, in the order asked for."""

    name: str
    links: Sequence[Link]

    @property
    def command(self) -> tuple[str, ...]:
        """What to write before a command that is to run in it."""
        return "ip", "netns", "exec", self.name


@contextmanager
def network(links: int) -> Iterator[Network]:
    """A network that is linked to this machine by so many cables."""
    number = next(_NUMBERS)
    name = f"tocsin-{os.getpid()}-{number}"
    _ip("netns", "add", name)
    try:
        _ip("-n", name, "link", "set", "lo", "up")
        yield Network(name, [_link(name, number, each) for each in range(links)])
    finally:
        _ip("netns", "delete", name)


def _link(network: str, number: int, each: int) -> Link:
    """Lay a cable. Deleting the network takes both its ends away."""
    here, there = f"tcs{number}-{each}h", f"tcs{number}-{each}t"
    link = Link(here, f"10.{number}.{each}.1", f"10.{number}.{each}.2")
    _ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", network)
    _ip("address", "add", f"{link.here}/24", "dev", here)
    _ip("-n", network, "address", "add", f"{link.there}/24", "dev", there)
    _ip("link", "set", here, "up")
    _ip("-n", network, "link", "set", there, "up")
    return link


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
