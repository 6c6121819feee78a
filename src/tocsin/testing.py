"""Test support: your app in virtual time (`lab`, `FakeScheduler`), and whole hosts in a simulation.

In a simulation store and network misbehave: `simulate(seed, main)` runs `main` on a `SimLoop`. Give the host a
`VirtualClock`, the `Random` that `main` gets, a `FaultyProvider` as store and a `SimNetwork` as transport, and the run
is a function of its seed.
"""

from tocsin.actors.testing import Process, SimLoop, Stuck, VirtualClock, Weather, crash, simulate
from tocsin.actors.testing.fake_scheduler import Call, FakeScheduler, attempts_at
from tocsin.actors.testing.lab.lab import Lab, lab
from tocsin.actors.testing.lab.sync_lab import SyncLab
from tocsin.dispatch.testing import Delivery, FakeReceiver, SimNetwork
from tocsin.storage.memory import MemoryDisk
from tocsin.storage.testing import FaultyProvider

__all__ = [
    "Call",
    "Delivery",
    "FakeReceiver",
    "FakeScheduler",
    "FaultyProvider",
    "Lab",
    "MemoryDisk",
    "Process",
    "SimLoop",
    "SimNetwork",
    "Stuck",
    "SyncLab",
    "VirtualClock",
    "Weather",
    "attempts_at",
    "crash",
    "lab",
    "simulate",
]
