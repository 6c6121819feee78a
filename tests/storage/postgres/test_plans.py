"""Every statement goes along the indexes, whatever the server believes of a table's size."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from tests.postgres import Postgres
from tocsin.storage.postgres.address import read_url
from tocsin.storage.postgres.connections import connect
from tocsin.storage.postgres.engine import PostgresEngine
from tocsin.storage.postgres.migrate import migrate
from tocsin.storage.postgres.statements import SCANS, backwards, statements

pytestmark = pytest.mark.anyio

GROWING = r"(?:kv|actor|mail|answer)\b"
"""Tables that grow with use; those of hosts and slots never have more than some thousand rows."""
FILL = """
INSERT INTO tocsin.actor SELECT n::int8 << 40, 'actor ' || n, n FROM generate_series(0, 999) n;
INSERT INTO tocsin.kv SELECT (n % 100)::int8 << 40, ('t:' || n)::bytea, '' FROM generate_series(1, 30000) n;
INSERT INTO tocsin.mail (slot, op, actor, body)
  SELECT n % 50, gen_random_uuid(), '', '' FROM generate_series(1, 5000) n;
INSERT INTO tocsin.answer SELECT gen_random_uuid(), '' FROM generate_series(1, 5000);
"""


@pytest.mark.parametrize("filled", [False, True], ids=["empty", "filled"])
async def test_no_statement_reads_a_whole_table(each_postgres: Postgres, filled: bool) -> None:
    database = each_postgres.database()
    await migrate(each_postgres.url(database))
    if filled:
        each_postgres.sql(FILL + "ANALYZE;", database)
    forwards = statements("tocsin")
    texts = {field.name: getattr(forwards, field.name) for field in fields(forwards)}
    texts |= {f"{name} backwards": getattr(backwards(forwards), name) for name in SCANS}
    connection = await connect(read_url(each_postgres.url(database)))
    try:
        for name, text in texts.items():
            await connection.execute(f"PREPARE tried AS {text}")
            given = max(map(int, re.findall(r"\$(\d+)", text)), default=0)
            values = f"({', '.join(['NULL'] * given)})" if given else ""
            plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN EXECUTE tried{values}"))
            await connection.execute("DEALLOCATE tried")

            assert not re.search(rf"Seq Scan on {GROWING}|Hash (?:Join|Semi|Anti)|Merge Join", plan), f"{name}:\n{plan}"
            if name.startswith("scan ") or name == "scan":
                assert "Sort" not in plan, f"{name}:\n{plan}"
    finally:
        connection.terminate()


async def test_the_alarms_of_all_slots_that_a_host_takes_are_read_at_once(postgres: Postgres) -> None:
    """Each statement more is time in which nothing of a slot rings: a host takes hundreds, here and there."""
    database = postgres.database()
    engine = PostgresEngine(postgres.url(database))
    await engine.open()
    try:
        postgres.sql(
            "INSERT INTO tocsin.actor SELECT n::int8 << 40, 'a' || n, n FROM generate_series(0, 4095) n", database
        )
        slots = range(0, 2 * 700, 2)
        pages = [page async for page in engine.wakes(slots)]
        assert pages == [[(f"a{slot}", slot) for slot in slots]]

        many = "INSERT INTO tocsin.actor SELECT (8::int8 << 40) + n, 'b' || n, n FROM generate_series(1, 100) n"
        postgres.sql(many, database)
        pages = [page async for page in engine.wakes(slots)]
        assert len(pages) == 2, "one slot has more than its share of a page, and is read on"
        expected = {f"a{slot}" for slot in slots} | {f"b{n}" for n in range(1, 101)}
        assert sorted(name for page in pages for name, _ in page) == sorted(expected)
    finally:
        await engine.close()


async def test_pages_of_a_long_scan_cost_the_same_wherever_they_begin(postgres: Postgres) -> None:
    """The blocks that a page touches are counted by the server: no clock of this machine decides."""
    database = postgres.database()
    await migrate(postgres.url(database))
    postgres.sql("INSERT INTO tocsin.actor VALUES (1, 'a'), (2, 'b')", database)
    postgres.sql(
        "INSERT INTO tocsin.kv SELECT 1 + n % 2, ('t:' || lpad(n::text, 9, '0'))::bytea, '' "
        "FROM generate_series(1, 120000) n; VACUUM ANALYZE tocsin.kv",
        database,
    )
    connection = await connect(read_url(postgres.url(database)))
    try:
        touched = []
        for number in (1, 60_000, 119_000):
            for sql in (statements("tocsin").scan_within, backwards(statements("tocsin")).scan_within):
                start = b"t:%09d" % number if "DESC" not in sql else b"t:"
                end = b"u" if "DESC" not in sql else b"t:%09d" % (number + 1_000)
                rows = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS) {sql}", "a", start, end, 100, 1 << 24)
                plan = "\n".join(row[0] for row in rows)
                touched.append(max(map(int, re.findall(r"shared hit=(\d+)", plan.partition("Planning:")[0]))))
    finally:
        connection.terminate()

    assert max(touched) <= 30, touched
