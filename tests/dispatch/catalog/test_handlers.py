"""What handlers declare: a catalog is made of it, and the receiver kit gives them what they declared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import pydantic
import pytest

from tests.dispatch.catalog.kinds import Item, Options, Order, Price
from tests.dispatch.receiver.signed_callbacks import NOW_MS, SECRET, ReceiverFixture, error
from tocsin import Catalog, Received, Receiver
from tocsin.dispatch.callback import Verdict
from tocsin.dispatch.catalog.handlers import annotation_of, reader_of
from tocsin.dispatch.outcome import classify
from tocsin.dispatch.transport import Answer
from tocsin.errors import SettingsError

if TYPE_CHECKING:
    from decimal import Decimal as Unknown

pytestmark = pytest.mark.anyio
T = TypeVar("T")
NOW = datetime(2027, 1, 1, tzinfo=UTC)


class Unbuildable:
    """No type of args."""


class Page(msgspec.Struct, Generic[T]):
    items: list[T]


class Model(pydantic.BaseModel):
    n: int


def plain(args): ...  # type: ignore[no-untyped-def]
def typed(args: Item, job: Received) -> None: ...
def quoted(args: list[Item]) -> None: ...
def unknown(args: Unknown) -> None: ...
def half_known(args: list[Item], job: Unknown) -> None: ...
def mixed(args: tuple[Item, Unbuildable]) -> None: ...
async def awaited(args: Options) -> None: ...


class Callables:
    def __call__(self, args: Order) -> None: ...
    def method(self, args: Price) -> None: ...


@functools.wraps(typed)
def wrapped(*args: Any) -> None: ...


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (plain, Any),
        (typed, Item),
        (quoted, list[Item]),
        (half_known, list[Item]),
        (awaited, Options),
        (Callables(), Order),
        (Callables().method, Price),
        (functools.partial(typed), Item),
        (wrapped, Item),
        (lambda args: None, Any),
        (print, Any),
        (dict, Any),
    ],
)
def test_the_annotation_of_the_first_parameter_is_the_type_of_the_args(handler: Callable[..., Any], kind: Any) -> None:
    assert annotation_of(handler) == kind


def test_a_catalog_is_made_of_handlers() -> None:
    catalog = Catalog.from_handlers({"typed": typed, "plain": plain}, workflows={"w": awaited})

    typed_refusal = catalog.functions["typed"].refusal(b'{"amount":"x"}')
    assert typed_refusal == "args.amount: expected int, got str"
    assert catalog.functions["plain"].refusal(b'"anything"') is None
    assert catalog.workflows["w"].refusal(b"{}") == "args.days: missing"


def test_an_annotation_that_cannot_be_read_is_said_with_its_path() -> None:
    with pytest.raises(SettingsError, match=r"the handler of 'p' takes cannot be read .*Unknown.*TYPE_CHECKING"):
        Catalog.from_handlers({"p": unknown})


def test_a_model_that_a_handler_cannot_be_given_is_said_when_it_is_registered(caplog: pytest.LogCaptureFixture) -> None:
    for handler, why in (
        (unknown, "name 'Unknown' is not defined"),
        (mixed, "Unbuildable is no type that args can hold"),
    ):
        assert reader_of(handler) is None
        assert f"{handler!r} is given args as they come: " in caplog.text
        assert why in caplog.text


# ---- The receiver kit ----------------------------------------------------------------------------


async def delivered(handler: Callable[..., Any], args: Any) -> Answer:
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": handler})
    return await fixture.send(args)


async def test_the_receivers_catalog_is_what_its_handlers_declare() -> None:
    receiver = Receiver([SECRET])
    receiver.register({"a": typed}, workflows={"w": awaited})
    first = receiver.catalog
    assert receiver.catalog is first
    receiver.handler("b")(plain)
    assert sorted(receiver.catalog.functions) == ["a", "b"]
    assert sorted(first.functions) == ["a"]


@pytest.mark.parametrize(
    ("kind", "args", "given"),
    [
        (Item, {"amount": 1, "when": NOW}, Item(1, NOW)),
        (list[Item] | None, [{"amount": 1}], [Item(1)]),
        (Model, {"n": "5"}, Model(n=5)),
        (Page[Item], {"items": [{"amount": 1}]}, Page([Item(1)])),
        (Options, {"days": 1, "more": 2}, {"days": 1, "more": 2}),
        (dict[str, int], {"a": "not an int"}, {"a": "not an int"}),
        (Any, {"a": 1}, {"a": 1}),
    ],
)
async def test_a_handler_is_given_the_model_it_declares_and_all_else_as_it_came(
    kind: Any, args: Any, given: Any
) -> None:
    seen = []

    def handler(args: Any, job: Received) -> None:
        seen.append((args, job.args))

    handler.__annotations__["args"] = kind
    answer = await delivered(handler, args)
    assert 200 <= answer.status <= 299, answer
    assert seen == [(given, args)]


async def test_args_that_do_not_fit_the_declared_model_are_dead_at_once() -> None:
    answer = await delivered(typed, {"amount": "x"})

    assert classify(answer, NOW_MS).verdict is Verdict.DEAD
    assert error(answer)["message"] == "invoices:send takes other args: args.amount: expected int, got str"
