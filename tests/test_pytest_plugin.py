"""The pytest plugin in runs of its own: with pytest-asyncio, with anyio, with neither, on several processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = """
import pytest

@pytest.fixture
def tocsin_app():
    async def remind(args):
        done.append(args["user"])
    done.clear()
    return {"carts:remind": remind}

@pytest.fixture
def done_list():
    return done

done = []
"""

BODY = """
    async with tocsin_lab() as t:
        await t.scheduler().run_after("3d", "carts:remind", {"user": "anna"})
        await t.advance("2d")
        assert not done_list
        await t.advance("1d")
    assert done_list == ["anna"]
"""

ASYNCIO = f"""
import pytest, pytest_asyncio
from tocsin.testing import lab

pytestmark = pytest.mark.asyncio

async def test_in_a_test(tocsin_lab, done_list):
{BODY}
@pytest_asyncio.fixture
async def t(tocsin_app):
    async with lab(tocsin_app) as t:
        yield t

async def test_in_a_fixture(t, done_list):
    await t.scheduler().run_after("3d", "carts:remind", {{"user": "anna"}})
    await t.advance("3d")
    assert done_list == ["anna"]
"""

ANYIO = f"""
import pytest
from tocsin.testing import lab

pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"

async def test_in_a_test(tocsin_lab, done_list):
{BODY}
@pytest.fixture
async def t(tocsin_app):
    async with lab(tocsin_app) as t:
        yield t

async def test_in_a_fixture(t, done_list):
    await t.scheduler().run_after("3d", "carts:remind", {{"user": "anna"}})
    await t.advance("3d")
    assert done_list == ["anna"]
"""

PLAIN = """
import asyncio, datetime
import pytest

START = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC)

@pytest.mark.tocsin(start=START, store="sqlite")
def test_without_any_loop(tocsin_lab, done_list):
    with tocsin_lab.sync() as t:
        assert t.now == START
        jobs = t.scheduler("tenant-a")
        jobs.run_after("3d", "carts:remind", {"user": "anna"})
        jobs.schedules.put("daily", cron="0 8 * * *", path="carts:remind", args={"user": "ben"})
        assert t.assert_scheduled("carts:remind", after="3d")[0].args == {"user": "anna"}
        t.advance("1d")
        t.crash()
        t.advance("2d")
        assert [one.ok for one in t.deliveries] == [True] * 4
    assert done_list == ["ben", "ben", "ben", "anna"]

def test_with_a_fake(tocsin_scheduler):
    async def code(jobs):
        return await jobs.run_after("5m", "a:b")
    id = asyncio.run(code(tocsin_scheduler))
    assert tocsin_scheduler.calls[0].method == "run_after"
"""

LEFT_OPEN = """
import pytest

@pytest.mark.asyncio
async def test_left_open(tocsin_lab):
    await tocsin_lab().__aenter__()
"""

UNUSED = """
import sys

LOADED = [name for name in sys.modules if name.startswith(("tocsin.actors", "tocsin.dispatch", "tocsin.storage"))]

def test_unused():
    assert not LOADED
"""


def run(folder: Path, modules: dict[str, str], *options: str) -> tuple[int, str]:
    """Run test modules as a user does; the code and what was said."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in modules.items():
        (folder / f"test_{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:schemathesis", "--strict-markers", *options],
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_with_pytest_asyncio_on_several_processes_and_a_lab_that_is_left_open_fails_its_test(tmp_path: Path) -> None:
    scope = ("-o", "asyncio_default_fixture_loop_scope=function")
    code, said = run(tmp_path, {"asyncio": ASYNCIO, "left_open": LEFT_OPEN}, *scope, "-n", "2")

    assert (code, "3 passed, 1 error" in said) == (1, True), said
    assert "1 lab(s) were not closed: use async with tocsin_lab() as t" in said


def test_with_anyio_and_without_any_plugin_for_coroutines(tmp_path: Path) -> None:
    """The first module finds that a plugin that was not used yet has imported nothing."""
    code, said = run(tmp_path, {"a_unused": UNUSED, "anyio": ANYIO, "plain": PLAIN}, "-p", "no:asyncio")

    assert (code, "5 passed" in said) == (0, True), said
