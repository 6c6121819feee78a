"""Both engines against a dict: random batches, scans, reopenings and restarts on the same place."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.postgres import Postgres
from tests.storage.engines import ENGINES, postgres_store
from tocsin.storage.api import UNSET, Batch, OrderedStore, Row, Unset
from tocsin.storage.conformance import Place

T = TypeVar("T")
QUICK = settings(max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
FEW = settings(QUICK, max_examples=2)
NAMES = st.sampled_from(["a", "b", "é"])
KEYS = st.binary(min_size=1, max_size=3) | st.sampled_from([b"a", b"b", b"\xff", b"a\x00"])
CHANGES = st.dictionaries(KEYS, st.none() | st.binary(max_size=20), max_size=12)
WAKES = st.sampled_from([UNSET, UNSET, None, 0, 5, 2**40])


class Model(RuleBasedStateMachine):
    """What a store must answer is what the dict says."""

    engine: Callable[[Path], Place]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.place = type(self).engine(self.folder)
        self.runner = asyncio.Runner()
        self.data: dict[str, dict[bytes, bytes]] = {}
        self.wakes: dict[str, int | None] = {}
        self.stores: dict[str, OrderedStore] = {}
        self.provider = self.place()
        self.run(self.provider.start())

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.runner.run(awaited())

    def teardown(self) -> None:
        self.run(self.provider.stop())
        self.runner.close()
        shutil.rmtree(self.folder)

    def store(self, name: str) -> OrderedStore:
        if name not in self.stores:
            self.stores[name] = self.run(self.provider.open(name))
        return self.stores[name]

    @rule(work=st.lists(st.tuples(NAMES, CHANGES, WAKES), min_size=1, max_size=6))
    def commit(self, work: list[tuple[str, dict[bytes, bytes | None], int | Unset | None]]) -> None:
        """Several batches at once: they travel together, and merged."""
        stores = {name: self.store(name) for name, _, _ in work}

        async def submit() -> None:
            done = []
            for name, changes, wake_at in work:
                puts = {key: value for key, value in changes.items() if value is not None}
                done.append(stores[name].commit(Batch(puts, set(changes) - set(puts), wake_at)))
            await asyncio.gather(*done)

        self.run(submit())
        for name, changes, wake_at in work:
            rows = self.data.setdefault(name, {})
            for key, value in changes.items():
                rows.pop(key, None)
                if value is not None:
                    rows[key] = value
            self.wakes[name] = self.wakes.get(name) if isinstance(wake_at, Unset) else wake_at

    @rule(name=NAMES, start=KEYS, end=KEYS, limit=st.integers(0, 20), reverse=st.booleans(), size=st.integers(0, 99))
    def scan(self, name: str, start: bytes, end: bytes, limit: int, reverse: bool, size: int) -> None:
        within = sorted(row for row in self.data.get(name, {}).items() if start <= row[0] < end)
        expected: list[Row] = []
        for row in (within[::-1] if reverse else within)[:limit]:
            expected.append(row)
            if sum(len(key) + len(value) for key, value in expected) >= size:
                break
        for view in (self.store(name), self.provider.view(name)):
            assert self.run(view.scan(start, end, limit=limit, reverse=reverse, max_bytes=size)) == expected

    @rule(name=NAMES, keys=st.lists(KEYS, max_size=5))
    def get(self, name: str, keys: list[bytes]) -> None:
        rows = self.data.get(name, {})

        assert self.run(self.store(name).get(keys)) == {key: rows[key] for key in keys if key in rows}

    @rule(name=NAMES)
    def reopen(self, name: str) -> None:
        self.stores.pop(name, None)

        assert self.store(name).wake_at == self.wakes.get(name)

    @rule()
    def restart(self) -> None:
        self.run(self.provider.stop())
        self.stores.clear()
        self.provider = self.place()
        self.run(self.provider.start())

    @invariant()
    def everything_is_as_the_dict_says(self) -> None:
        assert self.run(self.provider.names("", 10)) == sorted(self.data)
        for name, rows in self.data.items():
            assert self.run(self.provider.view(name).scan(b"\x00", b"\xff" * 4, limit=1_000)) == sorted(rows.items())


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
def test_the_store_is_a_dict_that_is_sorted(engine: Callable[[Path], Place]) -> None:
    machine = type("Machine", (Model,), {"engine": staticmethod(engine)})

    run_state_machine_as_test(machine, settings=QUICK)


def test_so_is_a_store_in_postgresql(postgres: Postgres) -> None:
    machine = type("Machine", (Model,), {"engine": staticmethod(lambda folder: postgres_store(postgres))})

    run_state_machine_as_test(machine, settings=FEW)
