"""Secrets and tokens that change while a host runs: the last good value stays, and each fault is told once."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tocsin.dispatch.current import Current
from tocsin.dispatch.signing import Signer
from tocsin.errors import SettingsError

OLD, NEW = b"the old secret of these tests", b"the new secret of these tests"
HUSH = "hush-hush-hush-hush-hush-hush"


def signer(given: Any) -> Signer | None:
    return Signer(given) if given else None


class Source:
    """A callable that gives, or raises, what it is told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __call__(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def signs_with(current: Current[Signer | None]) -> int:
    active = current()
    return 0 if active is None else active.sign("id", 1, b"").count("v1,")


def test_a_value_is_parsed_once_and_given() -> None:
    current = Current("secrets", [OLD], signer)
    assert current() is current()


def test_an_answer_is_parsed_again_when_it_has_changed_and_only_then() -> None:
    listed = [OLD]
    current = Current("secrets", lambda: listed, signer)
    first = current()
    listed[:] = [OLD]
    assert current() is first
    listed[:] = [NEW, OLD]  # the same list object
    assert current() is not first
    assert signs_with(current) == 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (ValueError(HUSH), "secrets() raised ValueError (test_current.py:"),
        (SettingsError("the vault is closed"), "the vault is closed"),
        ([b"short"], "has 5 bytes"),
        ([OLD, 7], "must be text or bytes, not int"),
        (HUSH, "must be a list"),
        (7, "secrets must be a list of secrets, not an int"),
        ([], "secrets() gave none, where there were some before"),
        (None, "secrets() gave none, where there were some before"),
    ],
)
def test_what_is_wrong_is_told_once_and_changes_nothing(
    wrong: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source([NEW, OLD])
    current = Current("secrets", source, signer)
    good = current()
    source.answer = wrong
    assert [current() for _ in range(3)] == [good] * 3
    assert [said in record.getMessage() for record in caplog.records] == [True]
    assert HUSH not in caplog.text
    assert "Traceback" not in caplog.text

    source.answer = [NEW, OLD]
    assert current() is good
    source.answer = wrong
    current()
    assert len(caplog.records) == 2
    source.answer = [NEW]
    assert signs_with(current) == 1


@pytest.mark.parametrize("wrong", [ValueError(HUSH), [b"short"], HUSH, 7])
def test_the_first_answer_must_be_good(wrong: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        Current("secrets", Source(wrong), signer)
    assert HUSH not in repr(caught.value)


def test_none_at_first_is_for_the_parser_to_judge_and_then_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    source = Source([])
    current = Current("secrets", source, signer)
    nothing: Any
    for nothing in ([], None, ()):
        source.answer = nothing
        assert current() is None
    source.answer = [NEW]
    assert signs_with(current) == 1
    assert caplog.records == []


async def late() -> list[bytes]:
    return [NEW]


def test_an_async_function_is_refused_without_a_warning() -> None:
    with pytest.raises(SettingsError, match="async def"):
        Current("secrets", late, signer)


class Unlike:
    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError(HUSH)

    __hash__ = None  # type: ignore[assignment]


def test_answers_that_cannot_be_compared_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    source = Source([OLD])
    current = Current("secrets", source, signer)
    good = current()
    source.answer = [Unlike()]
    assert current() is good
    assert "cannot be compared (ZeroDivisionError)" in caplog.text
    assert HUSH not in caplog.text


def test_nothing_shows_the_value(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        current = Current("secrets", lambda: [HUSH], signer)
        assert repr(current) == "Current(secrets)"
    assert HUSH not in caplog.text
