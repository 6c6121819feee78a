"""The simulation kit: an event loop with virtual time and seeded order, and clocks to go with it."""

from tocsin.actors.testing.clock import VirtualClock
from tocsin.actors.testing.loop import SimLoop, Stuck, simulate
from tocsin.actors.testing.process import Process, Weather, crash

__all__ = ["Process", "SimLoop", "Stuck", "VirtualClock", "Weather", "crash", "simulate"]
