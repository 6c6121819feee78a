"""What a simulated crash ends, and how bad things are just now."""

from __future__ import annotations


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
