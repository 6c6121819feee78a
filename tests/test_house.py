"""House rules that no linter has: sizes, docstrings, names, and what a file must not mention."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("actors", "dispatch", "storage")
CODE = (*ROOMS, "src", "tests", "bench", "scripts", "examples")
MODULE_LINES = 400
FUNCTION_LINES = 70
EMPTY_NAMES = {"base", "common", "core", "helper", "helpers", "manager", "misc", "util", "utils"}
"""Names that say nothing of what is inside."""
MACHINE_PATH = re.compile(r"(?<![\w.$}:/])/(?:home|root|Users|work|workspace)/\w")
DANGLING = {"It", "That", "They", "What", "Where", "Whether"}
"""First words that leave open what a docstring is about: it begins with a verb or, for a class or value, a noun."""
PLAIN_ROOMS = ("src/", *(f"{room}/" for room in ROOMS))
"""Where docstrings are held to that: in all production code."""
DOCUMENTED = (type(None), ast.Assign, ast.AnnAssign)
"""What stands before a docstring: nothing, or the assignment that it documents."""
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


@cache
def files() -> dict[str, str]:
    """Every text file of the repository, once (what lies behind links in src is left out), and what it says."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("*.toml")]
    for folder in (*CODE, "docs", ".ci"):
        found += (ROOT / folder).rglob("*")
    linked = [ROOT / "src" / "tocsin" / room for room in ROOMS]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8", "replace")
        for path in sorted(found)
        if path.is_file() and "__pycache__" not in path.parts and not any(map(path.is_relative_to, linked))
    }


@cache
def modules() -> dict[str, ast.Module]:
    return {name: ast.parse(text, name) for name, text in files().items() if name.endswith(".py")}


def test_modules_are_short_enough_to_read() -> None:
    sizes = {name: len(files()[name].splitlines()) for name in modules()}

    assert not {name: lines for name, lines in sizes.items() if lines > MODULE_LINES}, "split them by what they do"


def test_functions_are_short_enough_to_read() -> None:
    sizes = {
        f"{name}: {node.name}": node.end_lineno - node.lineno + 1
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None
    }

    assert not {name: lines for name, lines in sizes.items() if lines > FUNCTION_LINES}, "split them"


def test_modules_say_what_they_are() -> None:
    assert not [name for name, tree in modules().items() if tree.body and not ast.get_docstring(tree)]


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [
        f"{name}:{line}: {text[:60]}"
        for name, tree in modules().items()
        if name.startswith(PLAIN_ROOMS)
        for line, text in docstrings(tree)
        if re.split(r"\W", text, maxsplit=1)[0] in DANGLING
    ]

    assert not found, "say what it does (Return …, Check …) or what it is"


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings of a module, its classes and functions, and of texts below assignments."""
    for node in ast.walk(tree):
        body = node.body if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) else []
        for before, here in pairwise([None, *body]):
            match here:
                case ast.Expr(value=ast.Constant(value=str(text))) if isinstance(before, DOCUMENTED):
                    yield here.lineno, text.strip()


def test_modules_have_names_that_say_something() -> None:
    assert not [name for name in modules() if Path(name).stem in EMPTY_NAMES]


def test_rooms_are_imported_from_tocsin() -> None:
    """`import storage` works at the root of the repository, and nowhere else."""
    bare = [
        f"{name}: {imported}"
        for name, tree in modules().items()
        for imported in imports(tree)
        if imported.partition(".")[0] in ROOMS
    ]

    assert not bare, "write tocsin. before it"


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def test_no_file_knows_somebodys_machine_or_waits_to_be_finished() -> None:
    found = [
        f"{name}: {match[0]}"
        for name, text in files().items()
        for pattern in (MACHINE_PATH, UNFINISHED)
        for match in pattern.finditer(text)
    ]

    assert not found


WRITES = {
    "add_job", "add_plain_jobs", "erase_job", "enter_line", "leave_line", "drop_line", "put_lease", "change_lease",
    "drop_lease", "park", "unpark", "keep_result", "note_end",
}  # fmt: skip
"""What the state of a scheduler offers to change where a job stands."""


def test_only_one_module_writes_where_a_job_stands() -> None:
    """All others decide, and give it what they have decided."""
    callers = {
        name
        for name, tree in modules().items()
        if name.startswith("actors/scheduler/") and not name.startswith("actors/scheduler/state/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES
    }

    assert callers == {"actors/scheduler/transitions/apply.py"}
