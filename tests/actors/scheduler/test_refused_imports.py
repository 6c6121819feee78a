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


def _no_layout(lines: list[bytes]) -> bytes:
    return sealed([_layout(line, "x") for line in lines[:-1]])


def _empty_layout(lines: list[bytes]) -> bytes:
    return sealed([_layout(line, "") for line in lines[:-1]])


def _layout_beyond_its_manifest(lines: list[bytes]) -> bytes:
    return sealed([_layout(line, "99") for line in lines[:-1]])


def _layout(line: bytes, said: str) -> bytes:
    is_it = line.startswith(b'{"key":"meta/layout"')
    return b'{"key":"meta/layout","text":"%b"}' % said.encode() if is_it else line


def _no_clock(lines: list[bytes]) -> bytes:
    told = json.loads(lines[0])
    told["rows"] += 1
    told["kinds"]["clock"] = 1
    clock = b'{"key":"clock","text":"x"}'
    rows = [line for line in lines[1:-1] if line[8:] < clock[8:]]
    return sealed([json.dumps(told).encode(), *rows, clock, *lines[1 + len(rows) : -1]])


def _number_beyond_64_bits(lines: list[bytes]) -> bytes:
    return sealed([line.replace(b'"waiting":1', b'"waiting":%d' % 2**70) for line in lines[:-1]])


def _longer_than_a_row(lines: list[bytes]) -> bytes:
    return sealed([line.replace(b'"send"', b'"%b"' % (b"x" * 200_000)) for line in lines[:-1]])


def _nested_without_end(lines: list[bytes]) -> bytes:
    return sealed([lines[0], b'{"key":' + b"[" * 200_000, *lines[1:-1]])


def _nested_from_the_start(lines: list[bytes]) -> bytes:
    return b"[" * 200_000 + b"\n"


def _nothing(lines: list[bytes]) -> bytes:
    return b""


def _other(lines: list[bytes]) -> bytes:
    return b"id,when\n1,2\n"


WRONG: list[tuple[Callable[[list[bytes]], bytes], str]] = [
    (_cut, "is cut off: "), (_torn, "cut off in the middle"), (_edited, "checksum"),
    (_swapped, "stands where no export"),
    (_lacking, "does not hold the rows"), (_unsound, "not sound"), (_twice, "two files"),
    (_of_the_runtime, "stands where"),
    (_newer_format, "format 2"), (_newer_layout, "layout 99"),
    (_no_layout, "layout"), (_empty_layout, "layout"), (_layout_beyond_its_manifest, "layout"), (_no_clock, "clock"),
    (_number_beyond_64_bits, "not what an export writes"), (_longer_than_a_row, "longer than a row"),
    (_nested_without_end, "not what an export writes"), (_nested_from_the_start, "not an export"),
    (_nothing, "is empty"), (_other, "not an export"),
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


@on_simulated_host()
async def test_rows_that_came_are_removed_whatever_they_say(sim: SimulatedHost) -> None:
    """Nobody has found them sound: those that would keep an instance from being used do not keep it from removal."""
    target = sim.host.transfers("u")
    await target.begin_import("token")
    await target.import_rows("token", [(b"clock", b"x"), (b"meta/counters", b"x"), (b"meta/layout", b"x")])
    await sim.crash()
    await sim.open()
    assert (await sim.host.transfers("u").state()).importing
    await sim.sleep(70)
    assert not (await sim.host.transfers("u").state()).exists
    await imported(sim.host, await exported_of_one_job(sim))


async def exported_of_one_job(sim: SimulatedHost) -> bytes:
    await sim.jobs.run_after("1h", "send", id="a")
    return await exported(sim.host)
