"""What holds for every command of the tree: help, JSON, environment, exit codes, a place in the docs."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import click
import pytest
from click.core import ParameterSource

from tocsin.cli import failure, main
from tocsin.settings import HIDDEN, NAMES

from .command_tree import CHANGING, CLIENTS, LOCAL, TREE, arguments, needed
from .conftest import Canned, Run

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
WITHOUT_JSON = {"serve", "completion"}
OPTIONS = [
    (name, option)
    for name, command in TREE.items()
    for option in command.params
    if isinstance(option, click.Option) and name != "serve"
]
FILES = [f"{name}_file" for name in HIDDEN]
JUST = {"url", "token", "instance", "json", "store", "config"}
OF_SERVERS = {"export", "import instance"}
"""Commands that ask a server, also where a store is set for those that open one."""
"""Options whose variable has no name of a command in it."""


def flag_of(option: click.Option) -> str:
    return max(option.opts, key=len)


def variable_of(name: str, option: click.Option) -> str:
    """The name that help and docs promise."""
    word = flag_of(option).removeprefix("--").replace("-", "_").upper()
    if flag_of(option).removeprefix("--") in JUST and (flag_of(option) != "--store" or name not in OF_SERVERS):
        return f"TOCSIN_{word}"
    return f"TOCSIN_{name.replace(' ', '_').replace('-', '_').upper()}_{word}"


@pytest.mark.parametrize("name", TREE)
def test_every_command_has_help_within_80_columns(run: Run, name: str) -> None:
    result = run(*name.split(), "--help")
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    assert TREE[name].help


def test_the_list_of_commands_fits_and_cuts_no_word(run: Run) -> None:
    for words in ([], ["dead"], ["pools"], ["groups"], ["instances"], ["schedules"], ["keys"], ["config"]):
        shown = run(*words, "--help").output
        assert max(map(len, shown.splitlines())) <= 80
        assert "..." not in shown.replace("[ARGS]...", ""), shown


@pytest.mark.parametrize("name", sorted(TREE.keys() - WITHOUT_JSON))
def test_every_command_has_json(name: str) -> None:
    flags = {flag for option in TREE[name].params for flag in option.opts}
    assert "--json" in flags


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=[f"{name} {flag_of(option)}" for name, option in OPTIONS])
def test_every_option_comes_from_the_environment_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, option: click.Option
) -> None:
    if not option.allow_from_autoenv and option.envvar is None:  # read by `settings.load`, as `serve` does
        assert flag_of(option).removeprefix("--").replace("-", "_") in (*NAMES, "config", *FILES)
        return
    value = sample(option, tmp_path)
    monkeypatch.setenv(variable_of(name, option), value)
    context: click.Context = main.make_context("tocsin", name.split()[:1], resilient_parsing=True)
    command: click.Command = main
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.commands[word]
        last = word == name.split()[-1]
        context = command.make_context(
            word,
            [*arguments(command), *required(command, option)] if last else [name.split()[-1]],
            parent=context,
            resilient_parsing=not last,
        )
    context.close()  # and with it the files it has opened
    assert option.name is not None
    assert context.get_parameter_source(option.name) is ParameterSource.ENVIRONMENT
    assert context.params[option.name] not in (None, False, (), option.default)


def required(command: click.Command, but: click.Option) -> list[str]:
    """The options without which the command is not even parsed, but one."""
    options = [one for one in command.params if isinstance(one, click.Option) and one.required and one is not but]
    return [word for option in options for word in (flag_of(option), "1")]


def sample(option: click.Option, folder: Path) -> str:
    kind = option.type
    if isinstance(kind, click.Choice):
        return str(next(each for each in kind.choices if each != option.default))
    if isinstance(kind, click.File):
        (folder / "file").write_text("x: y")
        return str(folder / "file")
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        return "7"
    return "1" if option.is_flag or kind is click.INT or kind is click.FLOAT else str(folder)


def test_every_option_of_serve_is_a_setting_or_has_its_variable_in_the_help(run: Run) -> None:
    shown = run("serve", "--help").output
    for option in TREE["serve"].params:
        assert isinstance(option, click.Option)
        word = flag_of(option).removeprefix("--").replace("-", "_")
        assert word in (*NAMES, *FILES, "config", "access_log", "log_level"), word
    for setting in ("store", "port", "origin_url"):
        assert f"TOCSIN_{setting.upper()}" in shown


@pytest.mark.parametrize("name", CLIENTS)
def test_without_a_server_every_command_exits_3_and_prints_nothing(run: Run, name: str) -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = run(*name.split(), *arguments(TREE[name]), *needed(name), "--url", url, "--json")
    assert (result.exit_code, result.stdout) == (failure.Unreachable.exit_code, "")
    assert "tocsin serve" in result.stderr


@pytest.mark.parametrize("name", CLIENTS)
def test_what_the_server_refuses_exits_1_with_its_words(run: Run, canned: Canned, name: str) -> None:
    canned.refuse(403, "FORBIDDEN", "this token may not")
    result = run(*name.split(), *arguments(TREE[name]), *needed(name), "--json")
    assert (result.exit_code, result.stdout) == (failure.Refused.exit_code, "")
    assert "this token may not [FORBIDDEN]" in result.stderr


@pytest.mark.parametrize("name", sorted(set(CLIENTS) - {"claim", "import instance"}))  # done at once, or not at all
def test_a_change_that_a_cluster_keeps_for_its_owner_is_told_as_accepted(run: Run, canned: Canned, name: str) -> None:
    body = {"id": "job-1", "accepted": True}
    canned.answer(body, 202)
    words = (*name.split(), *arguments(TREE[name]), *needed(name))
    if name not in CHANGING:
        canned.refuse(403, "FORBIDDEN", "this token may not")
        run(*words)
        assert {one.method for one in canned.requests} == {"GET"}
        return
    text = "* * * * * true" if name == "import crontab" else None
    shown, in_json = run(*words, input=text), run(*words, "--json", input=text)
    assert (shown.exit_code, in_json.exit_code) == (0, 0), shown.output + in_json.output
    assert "accepted" in shown.stderr and "owner" in shown.stderr
    assert json.loads(in_json.stdout.splitlines()[0]).items() >= body.items()
    assert shown.stdout in {"schedule": ("job-1\n",), "submit": ("job-1\n\n",)}.get(name, ("",)) or "import" in name


def test_of_jobs_that_a_cluster_keeps_the_ids_are_printed_and_the_refused_are_told(
    run: Run, canned: Canned, tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs"
    jobs.write_text("\n".join('{"functionPath": "a:b"}' for _ in range(3)))
    fault = {"index": 1, "error": {"code": "INVALID_INPUT", "message": "no"}}
    canned.answer({"id": "call-1", "ids": ["m0", "m2"], "refused": [fault], "accepted": True}, 202)
    shown = run("submit", str(jobs))
    assert (shown.exit_code, shown.stdout) == (1, "m0\nm2\n")
    assert "line 2: no [INVALID_INPUT]" in shown.stderr and "accepted 2 jobs" in shown.stderr


@pytest.mark.parametrize("name", ["cancel-all", "dead retry-all", "dead cancel-all"])
def test_what_a_cluster_without_an_owner_cannot_count_is_not_done(run: Run, canned: Canned, name: str) -> None:
    canned.answer({"id": "call-1", "accepted": True}, 202)
    for more in ("--dry-run",), ():
        shown = run(*name.split(), "--all", *more)
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert "has no owner at present, so nothing was counted, nor changed" in shown.stderr
    assert all(one.body["dryRun"] for one in canned.requests)


@pytest.mark.parametrize("name", sorted(TREE.keys() - {"demo"}))
def test_an_option_that_is_not_there_exits_2(run: Run, canned: Canned, name: str) -> None:
    result = run(*name.split(), *arguments(TREE[name]), "--no-such-thing")
    assert (result.exit_code, result.stdout) == (2, "")
    assert canned.requests == []


def test_the_exit_codes_are_told_in_help_and_docs(run: Run) -> None:
    kinds: list[Any] = [kind for kind in vars(failure).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, failure.Failure) and kind is not failure.Failure}
    told = run("--help").output
    page = DOCS.read_text("utf-8")
    for code in {0, *codes}:
        assert re.search(rf"^ +{code}  ", told, re.MULTILINE), code
        assert re.search(rf"^\| {code} \|", page, re.MULTILINE), code


@pytest.mark.parametrize("name", TREE)
def test_every_command_is_on_its_page(name: str) -> None:
    page = DOCS.read_text("utf-8")
    assert re.search(rf"^#+ .*`tocsin {re.escape(name)}\b", page, re.MULTILINE), (
        f"docs/cli.md has no heading for {name}"
    )
    assert f"$ tocsin {name}" in page, f"docs/cli.md shows no example of {name}"


def test_the_page_shows_no_command_that_is_not_there() -> None:
    shown = re.findall(r"^\$ tocsin ([a-z- ]+?)(?= -| [^a-z]|$)", DOCS.read_text("utf-8"), re.MULTILINE)
    for words in shown:
        assert any(
            words == name or words.startswith(f"{name} ") for name in (*TREE, "pools", "dead", "instances", "schedules")
        ), words


def test_commands_that_talk_to_no_server_are_named() -> None:
    assert {name for name in LOCAL if name in TREE} >= {"serve", "demo", "check", "backup", "completion"}
