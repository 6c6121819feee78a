"""Files that are no whole export, or hold what is not sound: refused, and nothing is left of them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tests.actors.scheduler.test_transfer import exported, imported, sealed
from tocsin.errors import ConflictError, InvalidInputError


def _cut(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines[:-1])


def _torn(lines: list[bytes]) -> bytes:
    return b"\n".join(lines)[:-9]


def _edited(lines: list[bytes]) -> bytes:
    return b"".join(line.replace(b"send", b"sent") + b"\n" for line in lines)


def _swapped(lines: list[bytes]) -> bytes:
    return sealed([lines[0], lines[2], lines[1], *lines[3:-1]])


def _lacking(lines: list[bytes]) -> bytes:
    return sealed([lines[0], *lines[2:-1]])


def _unsound(lines: list[bytes]) -> bytes:
    told = json.loads(lines[0])
    rows = [line for line in lines[1:-1] if not line.startswith(b'{"key":"job/')]
    told["rows"], told["kinds"] = len(rows), {kind: n for kind, n in told["kinds"].items() if kind != "job"}
    return sealed([json.dumps(told).encode(), *rows])


def _twice(lines: list[bytes]) -> bytes:
    return 2 * b"".join(line + b"\n" for line in lines)


def _of_the_runtime(lines: list[bytes]) -> bytes:
    return sealed([lines[0], b'{"key":"\\u0000epoch","text":"9"}', *lines[1:-1]])


def _newer_format(lines: list[bytes]) -> bytes:
    return sealed([lines[0].replace(b'"format":1', b'"format":2'), *lines[1:-1]])


def _newer_layout(lines: list[bytes]) -> bytes:
    return sealed([lines[0].replace(b'"layout":3', b'"layout":99'), *lines[1:-1]])


def _nothing(lines: list[bytes]) -> bytes:
    return b""


def _other(lines: list[bytes]) -> bytes:
    return b"id,when\n1,2\n"


WRONG: list[tuple[Callable[[list[bytes]], bytes], str]] = [
    (_cut, "is cut off: "), (_torn, "cut off in the middle"), (_edited, "checksum"),
    (_swapped, "stands where no export"),
    (_lacking, "does not hold the rows"), (_unsound, "not sound"), (_twice, "two files"),
    (_of_the_runtime, "stands where"),
    (_newer_format, "format 2"), (_newer_layout, "layout 99"), (_nothing, "is empty"), (_other, "not an export"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), WRONG, ids=[change.__name__.strip("_") for change, _ in WRONG])
def test_a_file_that_is_not_whole_leaves_nothing(change: Callable[[list[bytes]], bytes], words: str) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.run_after("1h", "send", {"x": 1}, id="a")
        text = await exported(sim.host)
        with pytest.raises(InvalidInputError, match=words):
            await imported(sim.host, change(text.splitlines()))
        assert not (await sim.host.transfers("u").state()).exists
        await imported(sim.host, text)  # the name is free
        assert (await sim.host.scheduler("u").status()).backlog == 1

    run()


@on_simulated_host()
async def test_an_instance_that_exists_is_no_target(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "send", id="a")
    text = await exported(sim.host)
    for name in ("t", "used"):
        if name == "used":
            used = sim.host.scheduler("used")
            await used.run_after("1h", "p", id="b")
            await used.cancel("b")
        with pytest.raises(ConflictError, match="exists"):
            await imported(sim.host, text, name)
    assert (await sim.jobs.status()).backlog == 1
