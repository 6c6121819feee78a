"""Every Python block of a page runs, is run by a test that it names, or says what it leaves out.

Blocks without a mark run in the order of their page, in one namespace, in an empty folder. In the line before a block
that cannot run so stands a mark:

    <!-- run by: tests/cli/test_x.py -->      that test runs it, and reads this page
    <!-- fragment: app, host -->              names that it uses and the page does not define: these and no others
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import tocsin
from scripts.site.markdown import Block, blocks
from tocsin import ActorHost, Deferred, Handlers, Receiver, Scheduler
from tocsin.actors.scheduler.client.clock import Clock
from tocsin.actors.scheduler.client.groups import Groups
from tocsin.actors.scheduler.client.job_checks import JobOptions
from tocsin.actors.scheduler.client.schedules import Schedules

from .pages import HISTORY, PAGES, ROOT, all_blocks, ids, named

PYTHON: Final = list(all_blocks("python"))
FRAGMENTS: Final = [(page, block) for page, block in PYTHON if block.mark is not None]
RUNNING: Final = [page for page in PAGES if any(one is page and block.mark is None for one, block in PYTHON)]
SECRET: Final = "whsec_" + "c2VjcmV0IG9mIGF0IGxlYXN0IDI0IGJ5dGVz"
KINDS: Final[dict[str, type]] = {
    "host": ActorHost, "jobs": Scheduler, "receiver": Receiver, "handlers": Handlers, "later": Deferred,
}  # fmt: skip
"""What names of fragments stand for, so that calls of their methods are checked."""
PARTS: Final[dict[str, type]] = {"schedules": Schedules, "groups": Groups, "clock": Clock}


@pytest.mark.parametrize("page", RUNNING, ids=named)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOCSIN_SECRETS", SECRET)
    monkeypatch.setenv("TOCSIN_TOKENS", "ops:admin:choose-a-long-secret")
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # types of args are looked up there
    for block in blocks(page.read_text("utf-8")):
        if block.language == "python" and block.mark is None:
            exec(compile("\n" * block.line + block.text, named(page), "exec", dont_inherit=True), vars(module))


@pytest.mark.parametrize("page", RUNNING, ids=named)
def test_blocks_that_run_lack_no_name(page: Path) -> None:
    whole = "".join(block.text for one, block in PYTHON if one is page and block.mark is None)

    assert unbound(whole) == [], "define them on the page, or mark the block as a fragment"


@pytest.mark.parametrize(("page", "block"), FRAGMENTS, ids=ids(FRAGMENTS))
def test_marks_are_true(page: Path, block: Block) -> None:
    assert block.mark is not None
    word, value = block.mark
    assert word in {"run by", "fragment"}, "a mark is `run by: PATH` or `fragment: NAMES`"
    if word == "run by":
        assert page.name in (ROOT / value).read_text("utf-8"), f"{value} does not read this page"
    else:
        assert value.split(", ") == unbound(block.text), "these names are used and not defined here"


@pytest.mark.parametrize(("page", "block"), PYTHON, ids=ids(PYTHON))
def test_blocks_call_what_there_is(page: Path, block: Block) -> None:
    tree = parsed(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tocsin":
            exec(compile(ast.Module([node], []), named(page), "exec"), {})
    assert not list(wrong_calls(tree))


def wrong_calls(tree: ast.AST) -> Iterator[str]:
    """Walk calls of what is ours: methods that are not there, keyword arguments that are not taken."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or (called := callee(node.func)) is None:
            continue
        parameters = inspect.signature(called).parameters.values()
        taken = {one.name for one in parameters}
        takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
        if takes_all and "JobOptions" in str(inspect.signature(called)):
            taken, takes_all = taken | set(JobOptions.__annotations__), False
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in taken and not takes_all:
                yield f"{ast.unparse(node.func)} takes no {keyword.arg}"


def callee(node: ast.expr) -> Any:
    """Return what a call calls, if it is ours; AssertionError for a method that is not there."""
    text = ast.unparse(node)
    if re.fullmatch(r"[A-Z]\w+(\.\w+)?", text) and text.partition(".")[0] in tocsin.__all__:
        kind, _, method = text.partition(".")
        owner = getattr(tocsin, kind)
        return getattr(owner, method) if method else owner
    name, _, rest = text.partition(".")
    kind_of = KINDS.get(name)
    if kind_of is None or not re.fullmatch(r"\w+(\.\w+)?", rest):
        return None
    part, _, method = rest.partition(".")
    for owner in (PARTS[part] if method and part in PARTS else kind_of,):
        method = method if owner is not kind_of else rest
        assert hasattr(owner, method), f"{text}: {owner.__name__} has no {method}"
        found = getattr(owner, method)
        return None if isinstance(found, property) else found  # what makes calls of its own


def unbound(text: str) -> list[str]:
    """Return the names that a block uses and nothing in it binds."""
    used, bound = set[str](), set(dir(builtins))
    for node in ast.walk(parsed(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name):
                bound.add(name)
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound.add(name)
            case ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                bound.add((other or name).partition(".")[0])
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
    return sorted(used - bound)


def parsed(text: str) -> ast.Module:
    tree = compile(text, "block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(tree, ast.Module)
    return tree


def test_history_is_history() -> None:
    assert all((ROOT / name).exists() for name in HISTORY)
