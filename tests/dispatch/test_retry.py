"""The retry ladder: delays by the book, for any numbers, and mistakes named at once."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tocsin.dispatch.retry import LARGEST_MS, LEAST_MS, Retry
from tocsin.errors import InvalidInputError

SOME_MS = st.integers(0, LARGEST_MS) | st.floats(0, LARGEST_MS)
STEPS = st.integers(1, 10_000) | st.integers(1, 10**400)
BACKOFF: Any = st.sampled_from(["exponential", "linear"])


def ladder(retry: Retry, steps: int) -> list[int]:
    return [retry.delay_ms(n, Random(0)) for n in range(1, steps + 1)]


def test_the_default_is_five_retries_from_half_a_minute() -> None:
    retry = Retry()

    assert (retry.max_retries, retry.backoff) == (5, "exponential")
    assert ladder(retry, 9) == [30_000, 60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 3_600_000, 3_600_000]


def test_linear_grows_by_the_base() -> None:
    assert ladder(Retry(backoff="linear", base_ms=1_000, max_ms=3_500), 5) == [1_000, 2_000, 3_000, 3_500, 3_500]


def test_fractions_round_up() -> None:
    assert ladder(Retry(base_ms=250.25), 3) == [251, 501, 1_001]
    assert ladder(Retry(base_ms=10_000, max_ms=1_000.1), 1) == [1_001]


def test_no_delay_is_a_tight_loop() -> None:
    assert ladder(Retry(base_ms=0), 3) == [LEAST_MS] * 3
    assert ladder(Retry(max_ms=0), 3) == [LEAST_MS] * 3
    assert ladder(Retry(base_ms=40), 4) == [LEAST_MS, LEAST_MS, 160, 320]


def test_five_thousand_steps_stay_at_the_top() -> None:
    assert set(ladder(Retry(), 5_000)[7:]) == {3_600_000}


@given(SOME_MS, SOME_MS, STEPS, BACKOFF)
@example(5e-324, LARGEST_MS, 1_125, "exponential")
@example(0.5, LARGEST_MS, 10**400, "linear")
@example(LARGEST_MS, LARGEST_MS, 10**400, "exponential")
def test_a_delay_is_what_the_contract_says(base_ms: float, max_ms: float, n: int, backoff: Any) -> None:
    retry = Retry(backoff=backoff, base_ms=base_ms, max_ms=max_ms)
    grown = Fraction(base_ms) * (n if backoff == "linear" else 2 ** min(n - 1, 2_000))

    assert retry.delay_ms(n, Random(0)) == max(math.ceil(min(grown, Fraction(max_ms))), LEAST_MS)


@given(SOME_MS, SOME_MS, STEPS, BACKOFF, st.floats(0, 1), st.randoms(use_true_random=False))
def test_jitter_adds_up_to_its_share_and_never_takes_away(
    base_ms: float, max_ms: float, n: int, backoff: Any, jitter: float, random: Random
) -> None:
    plain = Retry(backoff=backoff, base_ms=base_ms, max_ms=max_ms).delay_ms(n, random)
    delay = Retry(backoff=backoff, base_ms=base_ms, max_ms=max_ms, jitter=jitter).delay_ms(n, random)

    assert isinstance(delay, int)
    assert plain <= delay <= plain * (1 + Fraction(jitter))


def test_jitter_uses_its_whole_share() -> None:
    retry, random = Retry(base_ms=10_000, jitter=0.5), Random(1)
    delays = [retry.delay_ms(1, random) for _ in range(2_000)]

    assert 10_000 <= min(delays) < 10_050 and 14_950 < max(delays) <= 15_000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_retries": -1}, "retry.max_retries must be 0..100, not -1"),
        ({"max_retries": 101}, "retry.max_retries must be 0..100, not 101"),
        ({"max_retries": True}, "retry.max_retries must be an integer, not True"),
        ({"max_retries": 5.0}, "retry.max_retries must be an integer, not 5.0"),
        ({"max_retries": None}, "retry.max_retries must be an integer, not None"),
        ({"backoff": "quadratic"}, "retry.backoff must be one of exponential, linear, not 'quadratic'"),
        ({"backoff": ["linear"]}, "retry.backoff must be one of"),
        ({"base_ms": -0.5}, "retry.base_ms must be 0..999999999999999, not -0.5"),
        ({"base_ms": 10**15}, "retry.base_ms must be 0..999999999999999, not 1000000000000000"),
        ({"base_ms": 10**5_000}, "retry.base_ms must be 0..999999999999999, not a number far outside"),
        ({"base_ms": -(10**5_000)}, "not a number far outside"),
        ({"base_ms": "30s"}, "retry.base_ms must be a number, not '30s'"),
        ({"base_ms": math.nan}, "retry.base_ms must be 0..999999999999999, not nan"),
        ({"max_ms": math.inf}, "retry.max_ms must be 0..999999999999999, not "),
        ({"max_ms": False}, "retry.max_ms must be a number, not False"),
        ({"jitter": 1.01}, "retry.jitter must be 0..1, not 1.01"),
        ({"jitter": -0.1}, "retry.jitter must be 0..1, not -0.1"),
        ({"jitter": math.nan}, "retry.jitter must be 0..1, not nan"),
        ({"jitter": True}, "retry.jitter must be a number, not True"),
    ],
)
def test_what_is_out_of_its_limits_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Retry(**given)

    assert said in caught.value.message


@pytest.mark.parametrize("limits", [{"max_retries": 0}, {"max_retries": 100}, {"jitter": 1}, {"base_ms": LARGEST_MS}])
def test_limits_themselves_are_legal(limits: dict[str, Any]) -> None:
    assert Retry(**limits)


@given(SOME_MS, SOME_MS, BACKOFF, st.lists(st.integers(1, 10**6), min_size=2, max_size=8))
def test_delays_never_shrink_and_never_pass_their_top(
    base_ms: float, max_ms: float, backoff: Any, steps: list[int]
) -> None:
    retry = Retry(backoff=backoff, base_ms=base_ms, max_ms=max_ms)
    delays = [retry.delay_ms(n, Random(0)) for n in sorted(steps)]

    assert delays == sorted(delays)
    assert delays[-1] <= max(math.ceil(max_ms), LEAST_MS)


@given(st.integers(0, 100), BACKOFF, SOME_MS, SOME_MS, st.integers(0, 1) | st.floats(0, 1))
def test_it_comes_back_from_json_as_it_went(
    retries: int, backoff: Any, base: float, most: float, jitter: float
) -> None:
    retry = Retry(max_retries=retries, backoff=backoff, base_ms=base, max_ms=most, jitter=jitter)
    back = msgspec.json.decode(msgspec.json.encode(retry), type=Retry)

    assert back == retry
    assert [type(value) for value in msgspec.structs.astuple(back)] == [
        type(value) for value in msgspec.structs.astuple(retry)
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"maxRetries":5.0}', "maxRetries"),
        (b'{"maxRetries":true}', "maxRetries"),
        (b'{"maxRetries":null}', "maxRetries"),
        (b'{"baseMs":1e400}', "baseMs"),
        (b'{"baseMs":%b}' % (b"9" * 5_000), "baseMs"),
        (b'{"baseMs":"30s"}', "baseMs"),
        (b'{"maxMs":false}', "maxMs"),
        (b'{"jitter":NaN}', "malformed"),
        (b'{"backoff":"Linear"}', "backoff"),
        (b'{"max_retries":3}', "unknown field `max_retries`"),
        (b"[5]", "Expected `object`"),
    ],
)
def test_json_that_is_no_retry_is_refused_by_name(text: bytes, said: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=said):
        msgspec.json.decode(text, type=Retry)


def test_it_travels_as_json() -> None:
    retry = Retry(max_retries=0, backoff="linear", base_ms=1.5, max_ms=9, jitter=0.5)
    text = b'{"maxRetries":0,"backoff":"linear","baseMs":1.5,"maxMs":9,"jitter":0.5}'

    assert msgspec.json.encode(retry) == text
    assert msgspec.json.decode(text, type=Retry) == retry
    assert msgspec.json.decode(b"{}", type=Retry) == Retry()
    with pytest.raises(msgspec.ValidationError, match=r"retry\.jitter must be 0\.\.1"):
        msgspec.json.decode(b'{"jitter":3}', type=Retry)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(b'{"tries":3}', type=Retry)
