"""Every method of the port goes over a link: none is missing, and what it takes and answers arrives as it was."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest

from tocsin.actors.scheduler.client import port
from tocsin.actors.sharing.operations import AGAIN, OPERATIONS, PARTS, Again
from tocsin.actors.sharing.remote_port import remote_part
from tocsin.errors import InvalidInputError


def methods() -> set[str]:
    """Walked from the port itself, by the annotations of its parts."""
    found = set()
    for part, value in vars(port.SchedulerPort).items():
        if isinstance(value, property) and value.fget is not None:
            kind = getattr(port, str(value.fget.__annotations__["return"]), None)
            if inspect.isclass(kind) and part not in ("name", "checks"):
                found |= {f"{part}.{name}" for name, one in vars(kind).items() if inspect.iscoroutinefunction(one)}
    # An instance that goes or comes is no matter of its handle.
    return found | {f"transfer.{name}" for name, one in vars(port.TransferPort).items() if not name.startswith("_")}


def test_every_method_of_the_port_is_an_operation_whose_loss_is_decided() -> None:
    wanted = methods()
    assert len(wanted) > 35
    assert wanted == {name for name in OPERATIONS if not name.startswith("host.")}
    assert set(AGAIN) == set(OPERATIONS)


@pytest.mark.parametrize("part", [part for part in PARTS if part != "host"])
def test_the_remote_part_has_every_method_with_its_parameters(part: str) -> None:
    remote = remote_part(part)
    for name, one in vars(PARTS[part]).items():
        if inspect.iscoroutinefunction(one):
            assert inspect.iscoroutinefunction(getattr(remote, name)), f"{part}.{name}"


def test_what_only_reads_is_repeated_and_what_counts_is_not() -> None:
    assert all(one.again is Again.REPEATED for one in OPERATIONS.values() if one.part == "reads")
    assert OPERATIONS["schedules.trigger"].again is Again.MAY_NOT_BE
    assert OPERATIONS["host.call"].again is Again.MAY_NOT_BE


VALUES: dict[str, list[Any]] = {
    "changes.complete": ["id", "1.2.abc", True, None, True, 5, False, b'{"a": 1}'],
    "changes.cancel_all": [None, "label", None, False, True],
    "queues.claim": [["a", "b"], 3, 60_000, 1_000, None, ()],
    "queues.outcome": ["id", None],
    "jobs.first_answer": [b"\x00\xff", b"x"],
    "host.accepted": ["default", [("id", "inc")]],
    "schedules.trigger": ["name", None],
}


@pytest.mark.parametrize("name", VALUES)
def test_arguments_arrive_as_they_were(name: str) -> None:
    operation = OPERATIONS[name]
    arrived = operation.decode(operation.encode(VALUES[name]))
    assert msgspec.json.encode(arrived) == msgspec.json.encode(VALUES[name])
    assert [type(one) for one in arrived if isinstance(one, bytes)] == [
        type(one) for one in VALUES[name] if isinstance(one, bytes)
    ]


def test_a_value_that_no_port_takes_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidInputError, match=r"^id must be text, a number, true or false, not an object"):
        OPERATIONS["changes.cancel"].encode([object()])


def test_a_call_that_has_waited_waits_less_at_the_next_holder() -> None:
    claim, outcome = OPERATIONS["queues.claim"], OPERATIONS["queues.outcome"]
    asked = ["*", 1, 60_000, 20_000, None, ()]
    assert claim.waiting_less(asked, 1.5)[3] == 18_500
    assert claim.waiting_less(asked, 60)[3] == 0
    assert outcome.waiting_less(["id", None], 60) == ["id", None], "for ever is still for ever"
    assert outcome.without_wait(["id", None]) == ["id", 0]
