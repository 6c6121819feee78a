"""Blocks that are no Python: data parses, commands exist with the options they are given, routes are served."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import pytest
import yaml

from scripts.site.markdown import Block
from tocsin.actors.http.openapi import document
from tocsin.cli import main

from .pages import all_blocks, ids, named

DATA: Final = list(all_blocks("json", "toml", "yaml", "ini"))
SHELL: Final = list(all_blocks("sh", "console"))
KNOWN: Final = {
    *("python", "json", "toml", "yaml", "ini", "sh", "console"),
    *("text", "javascript", "sql", "html", "diff", "dockerfile", "nginx"),
}
"""Languages of blocks: those that are checked here or run elsewhere, and those that are only shown."""
PROGRAMS: Final = {
    *(
        "tocsin",
        "pip",
        "pipx",
        "uv",
        "uvx",
        "python",
        "python3",
        "pytest",
        "uvicorn",
        "gunicorn",
        "granian",
        "hypercorn",
    ),
    *("curl", "node", "npm", "git", "docker", "podman", "systemctl", "journalctl", "systemd-creds", "sqlite3"),
    *(
        "cd",
        "mkdir",
        "cp",
        "mv",
        "cat",
        "echo",
        "export",
        "eval",
        "sleep",
        "kill",
        "wait",
        "createdb",
        "head",
        "ls",
        "install",
        "ln",
        "useradd",
    ),
    *(
        ".",
        "sudo",
        "sh",
        "scripts/test",
        "scripts/check",
        "scripts/docs",
        "crontab",
        "flask",
        "django-admin",
        "litestar",
    ),
}
"""Programs that pages call. `tocsin` and `curl` are looked at closely."""
ROUTES: Final = document(tokens=True)["paths"]


def test_every_block_says_its_language() -> None:
    unknown = [(named(page), block.line, block.language) for page, block in all_blocks() if block.language not in KNOWN]

    assert not unknown, "say it after the ticks; `text` if it is none"


@pytest.mark.parametrize(("page", "block"), DATA, ids=ids(DATA))
def test_data_parses(page: Path, block: Block) -> None:
    match block.language:
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "yaml":
            assert yaml.safe_load(block.text) is not None
        case _:
            ConfigParser(strict=False, interpolation=None).read_string(block.text)


@pytest.mark.parametrize(("page", "block"), SHELL, ids=ids(SHELL))
def test_commands_are_there_and_take_what_they_are_given(page: Path, block: Block) -> None:
    for words in commands(block):
        program = words[0].rpartition("/")[2] if words[0].startswith((".venv/", "venv/", "/opt/")) else words[0]
        assert program in PROGRAMS, f"{words[0]}: add it to PROGRAMS if it is one"
        if words[:3] == ["pipx", "run", "tocsin"] or words[:2] == ["uvx", "tocsin"]:
            words = words[words.index("tocsin") :]
        if words[0].rpartition("/")[2] == "tocsin":
            check_tocsin(words[1:])
        elif program == "curl":
            check_curl(words[1:])


def commands(block: Block) -> Iterator[list[str]]:
    """Walk the commands of a block, without what they are told on stdin or their output."""
    for line in whole_lines(block):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words, current = [*lexer], list[str]()
        for word in [*words, ";"]:
            if word in {"|", "||", "&&", ";", "&"}:
                command = without_settings(current)
                if command:
                    yield command
                current = []
            else:
                current.append(word)


def whole_lines(block: Block) -> Iterator[str]:
    """Walk the commands' lines: after `$ ` in a console, all of a script; what a command reads from there is not."""
    lines = iter(block.text.splitlines())
    for line in lines:
        if block.language == "console":
            if not line.startswith("$ "):
                continue
            line = line.removeprefix("$ ")
        while line.endswith("\\"):
            line = line.removesuffix("\\") + next(lines)
        while line.count("'") % 2:
            line += "\n" + next(lines)
        heredoc = re.search(r"<<-?\s*'?(\w+)'?", line)
        if heredoc:
            while next(lines).strip() != heredoc[1]:
                pass
            line = line.replace(heredoc[0], "")
        if line.strip():
            yield line


def without_settings(words: list[str]) -> list[str]:
    """Return a command without variables set before it, without redirections, and without the words of a loop."""
    if words and words[0] in {"for", "done"}:
        return []
    while words and words[0] in {"do", "until"}:
        words = words[1:]
    while words and (words[0] in {"sudo", "nohup", "$("} or re.fullmatch(r"[A-Z_]+=.*", words[0])):
        words = words[1:]
    for mark in (">", ">>", "<", "2>"):
        if mark in words:
            words = words[: words.index(mark)]
    return [word for word in words if word not in {"(", ")", "2"}]


def check_tocsin(words: list[str]) -> None:
    """Parse a call of the command line as the command line does, without running it."""
    command: click.Command = main
    context = click.Context(main, info_name="tocsin")
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-"):
            break
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"tocsin has no {name}"
        command = found
    parser = command.make_parser(click.Context(command, info_name=command.name))
    parser.parse_args(args=[word for word in words if word != "..."])


def check_curl(words: list[str]) -> None:
    """Check that a request to a tocsin server names a route and a method that it has."""
    address = next((word for word in words if word.startswith("http")), "")
    parts = urlsplit(address)
    if parts.port != 8321:
        return  # an app of the reader's
    method = next((after for word, after in pairwise(words) if word == "-X"), None)
    method = method or ("POST" if {"-d", "--data", "--json", "--data-binary"} & set(words) else "GET")
    if parts.path in {"/openapi.json"}:
        return
    pattern = next((route for route in ROUTES if fits(route, parts.path)), None)
    assert pattern is not None, f"no route is at {parts.path}"
    assert method.lower() in ROUTES[pattern], f"{pattern} has no {method}"


def fits(route: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route)), path) is not None


@pytest.mark.parametrize("wrong", ["tocsin lst", "tocsin ls --colour", "tocsin dead ls --limit"])
def test_a_command_that_is_not_there_is_noticed(wrong: str) -> None:
    with pytest.raises((AssertionError, click.UsageError)):
        check_tocsin(wrong.split()[1:])


@pytest.mark.parametrize("wrong", ["http://127.0.0.1:8321/lst", "-X PUT http://127.0.0.1:8321/i/tenant-a/list"])
def test_a_route_that_is_not_there_is_noticed(wrong: str) -> None:
    with pytest.raises(AssertionError):
        check_curl(wrong.split())


def test_commands_are_found_in_scripts_and_consoles() -> None:
    script = "# one\nA=1 tocsin ls | head; tocsin get x &\ncat > f <<'END'\ntocsin no command\nEND\n"
    console = "$ tocsin ls \\\n    --all  # of them\nID STATE\n"

    assert [*commands(Block(1, "sh", script, None))] == [
        ["tocsin", "ls"], ["head"], ["tocsin", "get", "x"], ["cat"],
    ]  # fmt: skip
    assert [*commands(Block(1, "console", console, None))] == [["tocsin", "ls", "--all"]]
