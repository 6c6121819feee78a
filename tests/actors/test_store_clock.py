"""The clock of a host whose computer's clock may be off, with a store that knows the time."""

from __future__ import annotations

import pytest

from tocsin.actors.runtime.store_clock import BAND_MS, LOOKS, StoreClock


class Skewed:
    """A computer's clock, and the store's, both set by hand."""

    def __init__(self, ahead_ms: int) -> None:
        self.true_ms, self.ahead_ms, self.error_ms, self.known = 1_000_000, ahead_ms, 0, True

    look_again_s = 1.0

    def now_ms(self) -> int:
        return self.true_ms + self.ahead_ms

    def monotonic(self) -> float:
        return self.true_ms / 1000

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")

    def store_ms(self) -> int | None:
        return self.true_ms + self.error_ms if self.known else None


@pytest.mark.parametrize("ahead_ms", [3_600_000, -5_000, BAND_MS + 1])
def test_a_clock_that_is_off_is_put_right_from_the_first_look_on(ahead_ms: int) -> None:
    own = Skewed(ahead_ms)
    clock = StoreClock(own, own.store_ms)
    assert clock.now_ms() == own.true_ms and clock.ahead_ms == ahead_ms


def test_small_differences_and_single_wrong_looks_move_no_clock() -> None:
    own = Skewed(BAND_MS)
    clock = StoreClock(own, own.store_ms)
    for own.error_ms in (0, 20, -400, 10):
        own.true_ms += 1000
        assert clock.now_ms() == own.now_ms() and clock.ahead_ms == 0


def test_a_clock_that_is_set_right_while_the_host_runs_counts_again_after_some_looks() -> None:
    own = Skewed(10_000)
    clock = StoreClock(own, own.store_ms)
    for own.ahead_ms in (10_000, 0):
        for _ in range(LOOKS):
            own.true_ms += 1000
            clock.now_ms()
    assert clock.now_ms() == own.true_ms and clock.ahead_ms == 0


def test_a_clock_goes_by_itself_until_the_store_has_told_the_time() -> None:
    own = Skewed(10_000)
    own.known = False
    clock = StoreClock(own, own.store_ms)
    assert clock.now_ms() == own.now_ms()
    own.known = True
    assert clock.now_ms() == own.true_ms
    clock.forget()
    assert clock.ahead_ms == 0 and clock.now_ms() == own.true_ms


def test_a_clock_that_is_stepped_is_put_right_at_once() -> None:
    own = Skewed(0)
    clock = StoreClock(own, own.store_ms)
    for _ in range(LOOKS):
        own.true_ms += 1000
        assert clock.now_ms() == own.true_ms
    for own.ahead_ms in (60_000, -60_000, 0):
        own.true_ms += 1
        assert clock.now_ms() == own.true_ms, "else leases of other hosts would end too early"
