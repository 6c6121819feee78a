"""The command itself: version, help, keys, shown settings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tocsin.cli.keys import new_secret
from tocsin.settings import HIDDEN, load

from .conftest import Run


def test_version_is_the_packages(run: Run) -> None:
    assert run("--version").output == f"tocsin {version('tocsin')}\n"


def test_help_lists_commands_and_exit_codes(run: Run) -> None:
    shown = run("--help").output
    for word in ("serve", "demo", "schedule", "dead", "Exit codes", "TOCSIN_"):
        assert word in shown


@pytest.mark.parametrize(
    "words", ["serve", "demo", "schedule", "ls", "get", "cancel", "status", "dead ls", "dead retry", "keys new"]
)
def test_every_command_has_help_within_80_columns(run: Run, words: str) -> None:
    result = run(*words.split(), "--help")
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80


def test_the_modules_of_the_command_line_import_nothing_heavy() -> None:
    """`tocsin/__init__` is another's; what the commands add to it must stay light."""
    code = (
        "import sys, tocsin; before = set(sys.modules); import tocsin.cli; "
        "print([m for m in set(sys.modules) - before if m in {'httpx', 'uvicorn', 'starlette', 'rich', 'asyncio'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_new_key_is_a_secret_the_settings_take(run: Run, tmp_path: Path) -> None:
    first, second = run("keys", "new").stdout.strip(), json.loads(run("keys", "new", "--json").stdout)["secret"]
    assert first != second
    assert load({}, {"TOCSIN_SECRETS": f"{first},{second}"}, directory=tmp_path).secrets == (first, second)


def test_shown_settings_say_where_they_come_from_and_hide_secrets(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tocsin.toml").write_text("lanes = 7")
    secret = new_secret()
    env = {"TOCSIN_SECRETS": secret, "TOCSIN_PORT": "99"}
    shown = run("config", "show", "--origin", env=env).output
    assert secret not in shown
    assert "TOCSIN_PORT" in shown
    assert "lanes in tocsin.toml" in shown
    values = json.loads(run("config", "show", "--json", env=env).output)
    assert (values["lanes"], values["port"], values["secrets"]) == (7, 99, "(1 given)")


def test_shown_settings_are_all_that_are_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"TOCSIN_TOKEN": "hush", "TOCSIN_URL": "https://" + "x" * 90}
    shown = run("config", "show", "--origin", env=env)
    assert "hush" not in shown.output
    assert max(map(len, shown.stdout.splitlines())) <= 80
    values = json.loads(run("config", "show", "--origin", "--json", env=env).output)
    assert values["token"] == {"value": "(given)", "origin": "TOCSIN_TOKEN"}
    assert values["instance"] == {"value": "default", "origin": "default"}
    read = {
        name.removeprefix("TOCSIN_").lower()
        for name in re.findall(r"TOCSIN_[A-Z_]+[A-Z]", run("serve", "--help").output)
    }
    assert read - {"config", *(f"{name}_file" for name in HIDDEN)} <= set(values)


def test_wrong_settings_exit_2(run: Run) -> None:
    result = run("config", "show", env={"TOCSIN_PORT": "x"})
    assert result.exit_code == 2
    assert "TOCSIN_PORT" in result.stderr
