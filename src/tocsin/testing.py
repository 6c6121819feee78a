"""Test support: whole hosts in virtual time, with a store and a network that misbehave.

`simulate(seed, main)` runs `main` on a `SimLoop`. Give the host a `VirtualClock`, the `Random` that `main` gets, a
`FaultyProvider` as store and a `SimNetwork` as transport, and the run is a function of its seed.
"""

from tocsin.actors.testing import Process, SimLoop, Stuck, VirtualClock, Weather, crash, simulate
from tocsin.dispatch.testing import Delivery, FakeReceiver, SimNetwork
from tocsin.storage.memory import MemoryDisk
from tocsin.storage.testing import FaultyProvider

__all__ = [
    "Delivery",
    "FakeReceiver",
    "FaultyProvider",
    "MemoryDisk",
    "Process",
    "SimLoop",
    "SimNetwork",
    "Stuck",
    "VirtualClock",
    "Weather",
    "crash",
    "simulate",
]
