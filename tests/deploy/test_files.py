"""The files in deploy/ name commands, settings and limits that there are."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from configparser import RawConfigParser
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from tests.examples.conftest import missing
from tests.examples.test_reminders import BLOCKING
from tocsin.actors.http.tokens import parse_tokens
from tocsin.cli import main
from tocsin.cli.failure import WrongSettings
from tocsin.cli.http_server import GRACE_S
from tocsin.cli.keys import new_secret
from tocsin.settings import HIDDEN, NAMES, Settings, load

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
VARIABLES: Final = {f"TOCSIN_{name.upper()}" for name in (*NAMES, "config", *(f"{name}_file" for name in HIDDEN))}
DRAIN_S: Final = 10
"""The default of `drain_s`."""


class Unit(RawConfigParser):
    """A unit file: keys may come again, and keep their case."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False)
        self.text = (DEPLOY / name).read_text("utf-8")
        self.read_string(re.sub(r"(?m)^(\w+)=(.*)$", self._numbered, self.text))

    def _numbered(self, line: re.Match[str]) -> str:
        return f"{line[1]}#{line.start()}={line[2]}"

    def optionxform(self, optionstr: str) -> str:
        return optionstr

    def all(self, key: str) -> list[str]:
        found = [(name, value) for section in self.sections() for name, value in self[section].items()]
        return [value for name, value in found if name.partition("#")[0] == key]

    def environment(self) -> dict[str, str]:
        return dict(one.split("=", 1) for one in self.all("Environment"))


Stage = list[tuple[str, str]]


def stages() -> dict[str, Stage]:
    """The instructions of each stage of the Containerfile, in order, with those of the stage that it goes on from."""
    lines = re.sub(r"(?m)^#.*\n", "", (DEPLOY / "Containerfile").read_text("utf-8")).replace("\\\n", " ")
    found: dict[str, Stage] = {}
    for line in filter(str.strip, lines.splitlines()):
        word, rest = line.split(None, 1)
        if word == "FROM":
            origin, _, name = rest.split()
            current = found[name] = list(found.get(origin, []))
        elif found:
            current.append((word, rest))
    return found


def named_variables(text: str) -> Iterator[str]:
    yield from re.findall(r"\bTOCSIN_[A-Z_]+", text)


@pytest.mark.parametrize("path", sorted(filter(Path.is_file, DEPLOY.iterdir())), ids=lambda path: str(path.name))
def test_every_variable_is_a_setting(path: Path) -> None:
    client = {"TOCSIN_URL", "TOCSIN_TOKEN"}

    assert not set(named_variables(path.read_text("utf-8"))) - VARIABLES - client


def test_every_command_is_one() -> None:
    calls = [
        shlex.split(one) for name in ("tocsin.service", "tocsin-backup.service") for one in Unit(name).all("ExecStart")
    ]
    words = [word for call in calls for word in (call if len(call) != 3 else shlex.split(call[2]))]
    named = [words[place + 1] for place, word in enumerate(words) if word == "/opt/tocsin/bin/tocsin"]

    assert named == ["serve", "backup"]
    assert isinstance(main, click.Group) and set(named) <= set(main.commands)


def test_the_settings_file_is_read(tmp_path: Path) -> None:
    found = load({"config": str(DEPLOY / "tocsin.toml")}, {})

    assert set(tomllib.loads((DEPLOY / "tocsin.toml").read_text("utf-8"))) <= {one.name for one in fields(Settings)}
    assert (found.port, found.bound_to_loopback) == (Settings().port, True)


def test_the_unit_keeps_the_store_in_its_state_directory_and_stops_no_earlier_than_a_drain() -> None:
    for name in ("tocsin.service", "tocsin-backup.service"):
        unit = Unit(name)
        directories = unit.all("StateDirectory")[0].split()
        store = unit.environment()["TOCSIN_STORE"].replace("%S", "/var/lib")
        assert store == f"sqlite:////var/lib/{directories[0]}/tocsin.db"
        assert (unit.all("User"), unit.all("UMask")) == (["tocsin"], ["0077"])
    server = Unit("tocsin.service")
    assert int(server.all("TimeoutStopSec")[0]) > DRAIN_S + GRACE_S
    assert server.all("Type") == ["notify"]
    assert server.all("RestartPreventExitStatus") == [str(WrongSettings.exit_code)]
    assert "tocsin-backups" in Unit("tocsin-backup.service").all("StateDirectory")[0]


def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    """With a program at the place where the page installs tocsin."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        missing("systemd-analyze is not installed")
        return
    for path in DEPLOY.glob("tocsin*.*"):
        shown = path.read_text("utf-8").replace("/opt/tocsin/bin/tocsin", sys.executable)
        (tmp_path / path.name).write_text(shown, "utf-8")
    units = [str(tmp_path / name) for name in ("tocsin.service", "tocsin-backup.service", "tocsin-backup.timer")]
    verified = subprocess.run([analyze, "verify", *units], capture_output=True, text=True, timeout=60)

    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_server_is_the_last_stage_since_that_is_what_is_built() -> None:
    server = dict(stages()["server"])
    settings = dict(one.split("=", 1) for one in shlex.split(server["ENV"]))

    assert [*stages()][-1] == "server"
    assert (server["ENTRYPOINT"], server["CMD"]) == ('["tocsin"]', '["serve"]')
    assert server["VOLUME"] == '["/var/lib/tocsin"]'
    assert settings["TOCSIN_STORE"].startswith("sqlite:////var/lib/tocsin/")
    assert server["EXPOSE"] == settings["TOCSIN_PORT"] == str(Settings().port)


@pytest.mark.parametrize("stage", ["server", "example"])
def test_an_image_runs_as_nobody_special(stage: str) -> None:
    words = [word for word, _ in stages()[stage]]
    user = dict(stages()[stage])["USER"].split(":")[0]

    assert user.isdigit() and int(user) > 0
    assert words.index("USER") > max(place for place, word in enumerate(words) if word in {"RUN", "COPY"})


def test_the_health_check_asks_whether_the_server_is_ready() -> None:
    program = re.search(r'"-c", "(.*)"\]', dict(stages()["server"])["HEALTHCHECK"])
    assert program is not None
    compile(program[1], "HEALTHCHECK", "exec")

    assert "'/readyz'" in program[1] and "os.environ['TOCSIN_PORT']" in program[1]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return found


def test_the_compose_file_is_one() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*command, str(DEPLOY / "compose.yaml")], capture_output=True, text=True, timeout=60)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_services_of_the_compose_file_find_each_other() -> None:
    server, app = (compose()["services"][name] for name in ("tocsin", "app"))
    stage_of = {name: dict(stages()[one["build"]["target"]]) for name, one in compose()["services"].items()}

    assert server["environment"]["TOCSIN_ORIGIN_URL"] == f"http://app:{stage_of['app']['EXPOSE']}"
    assert app["environment"]["TOCSIN_URL"] == f"http://tocsin:{stage_of['tocsin']['EXPOSE']}"
    for one, stage in ((server, stage_of["tocsin"]), (app, stage_of["app"])):
        port = stage["EXPOSE"]
        assert one["ports"] == [f"127.0.0.1:{port}:{port}"]
        assert [volume.partition(":")[2] for volume in one["volumes"]] == json.loads(stage["VOLUME"])
        assert {volume.partition(":")[0] for volume in one["volumes"]} <= set(compose()["volumes"])
        assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"])
        assert int(one["stop_grace_period"].removesuffix("s")) > DRAIN_S + GRACE_S
    assert app["depends_on"]["tocsin"]["condition"] == "service_healthy" and "HEALTHCHECK" in stage_of["tocsin"]
    tokens = server["environment"]["TOCSIN_TOKENS"].replace("${TOCSIN_TOKEN:?a text that is hard to guess}", "x" * 32)
    assert parse_tokens([tokens])


def test_the_example_in_the_image_is_the_one_that_is_tested() -> None:
    copied = [rest.split()[0] for word, rest in stages()["example"] if word == "COPY" and "--from" not in rest]
    target = json.loads(dict(stages()["example"])["CMD"])[-1]

    assert copied == ["examples/reminders_flask.py"] and target in BLOCKING["flask"]
    assert (ROOT / copied[0]).exists()


def test_the_image_is_built_of_all_that_the_package_is_made_of() -> None:
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-dir"]
    taken = {
        line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line[0] == "!"
    }

    assert {folder.partition("/")[0] for folder in packed.values()} <= taken


def test_the_page_runs_the_wheel_that_is_built() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

    assert f"dist/tocsin-{version}-py3-none-any.whl" in (ROOT / "docs" / "deploying.md").read_text("utf-8")


def test_the_token_of_the_page_is_one() -> None:
    assert parse_tokens([f"ops:admin:{new_secret()}"])
