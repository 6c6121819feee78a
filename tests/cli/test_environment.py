"""Variables that others set for us: service links of Kubernetes, names with a slip in them, settings nobody needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.cli import main
from tocsin.cli.environment import remarks
from tocsin.cli.keys import new_secret
from tocsin.errors import SettingsError
from tocsin.settings import NAMES, load

from .conftest import Canned, Run
from .processes import tocsin, tocsin_serve

LINKS = {
    "TOCSIN_PORT": "tcp://10.0.48.109:8321",
    "TOCSIN_SERVICE_HOST": "10.0.48.109",
    "TOCSIN_SERVICE_PORT": "8321",
    "TOCSIN_SERVICE_PORT_HTTP": "8321",
    "TOCSIN_PORT_8321_TCP": "tcp://10.0.48.109:8321",
    "TOCSIN_PORT_8321_TCP_ADDR": "10.0.48.109",
    "TOCSIN_PORT_8321_TCP_PORT": "8321",
    "TOCSIN_PORT_8321_TCP_PROTO": "tcp",
    "TOCSIN_STORE_PORT": "tcp://10.0.48.110:5432",
    "TOCSIN_STORE_SERVICE_HOST": "10.0.48.110",
}
"""Beside a service `tocsin` and a service `tocsin-store`."""


def test_a_service_link_is_no_port_and_the_next_place_counts(tmp_path: Path) -> None:
    assert load({}, LINKS, directory=tmp_path).port == 8321
    assert load({"port": "99"}, LINKS, directory=tmp_path).port == 99
    (tmp_path / "tocsin.toml").write_text("port = 77")
    assert load({}, LINKS, directory=tmp_path).port == 77


@pytest.mark.parametrize("port", ["tcp", "http://10.0.0.1:80", "10.0.0.1:80", "tcp://", "tcp:// x"])
def test_what_is_no_service_link_is_a_wrong_port(tmp_path: Path, port: str) -> None:
    with pytest.raises(SettingsError, match="TOCSIN_PORT must be a whole number"):
        load({}, {"TOCSIN_PORT": port}, directory=tmp_path)


def test_a_service_link_as_an_option_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--port must be a whole number"):
        load({"port": LINKS["TOCSIN_PORT"]}, {}, directory=tmp_path)


def test_one_sentence_is_said_of_a_service_link_and_none_of_its_companions() -> None:
    [said] = remarks(LINKS, main)
    assert said.startswith("TOCSIN_PORT=tcp://10.0.48.109:8321 is a service link of Kubernetes")
    assert "--port" in said


def test_a_slip_in_a_name_is_said_without_the_value() -> None:
    [said] = remarks({"TOCSIN_SECRET": "hush", "TOCSIN_SECRETS_FILE": "keys"}, main)
    assert said == "TOCSIN_SECRET is no setting, so it is ignored: do you mean TOCSIN_SECRETS?"


def test_nothing_is_said_of_settings_options_and_names_of_others() -> None:
    known = {f"TOCSIN_{name.upper()}": "1" for name in NAMES}
    options = {"TOCSIN_LS_LIMIT": "5", "TOCSIN_DEAD_RETRY_ALL_ALL": "1", "TOCSIN_LOG_LEVEL": "info", "TOCSIN_URL": "x"}
    others = {"TOCSIN_TEAM": "a", "PATH": "/bin", "TOCSINS": "2"}
    assert remarks({**known, **options, **others}, main) == []


def test_a_server_beside_a_service_of_its_name_starts_and_says_so(tmp_path: Path) -> None:
    with tocsin_serve(cwd=tmp_path, **LINKS, TOCSIN_SECRET="hush") as server:
        server.line_with("service link of Kubernetes")
        server.line_with("do you mean TOCSIN_SECRETS?")
        assert server.url()
        assert not any("hush" in line for line in server.lines)
        assert server.stop() == 0


@pytest.mark.parametrize("port", [LINKS["TOCSIN_PORT"], "nonsense"])
def test_commands_that_need_no_port_do_not_fail_on_it(tmp_path: Path, canned: Canned, port: str) -> None:
    env = {"TOCSIN_PORT": port, "TOCSIN_LANES": "many", "TOCSIN_SECRETS": new_secret(), "TOCSIN_URL": canned.url}
    canned.answer({"records": [], "truncated": False})
    (tmp_path / "body").write_text("{}")
    for words in (["keys", "new"], ["keys", "sign", "body"], ["next", "* * * * *"], ["ls"], ["--help"]):
        done = tocsin(*words, cwd=tmp_path, **env)
        assert done.returncode == 0, done.stderr
    for words in (["check"], ["backup", "copy.db"]):
        done = tocsin(*words, cwd=tmp_path, **env)
        assert done.returncode == 4, done.stderr  # there is no store, and that is all that is wrong


# ---- The file that serves both -------------------------------------------------------------------


def test_a_command_beside_the_file_of_a_server_finds_it(tmp_path: Path) -> None:
    with tocsin_serve("--port", "0", cwd=tmp_path) as server:
        port = server.url().rpartition(":")[2]
        (tmp_path / "tocsin.toml").write_text(f"port = {port}\n")
        done = tocsin("status", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_banner_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "tocsin.toml").write_text("lanes = 3\n")
    with tocsin_serve(cwd=tmp_path) as server:
        assert f", settings of {tmp_path / 'tocsin.toml'}, " in server.line_with("serving")


@pytest.mark.parametrize(
    ("text", "env", "url"),
    [
        ("port = 4711", {}, "http://127.0.0.1:4711"),
        ("port = 4711", {"TOCSIN_PORT": "4712"}, "http://127.0.0.1:4712"),
        ('port = 4711\nhost = "::1"', {}, "http://[::1]:4711"),
        ('port = 4711\nhost = "::"', {}, "http://[::1]:4711"),
        ('port = 4711\nhost = "0.0.0.0"', {}, "http://127.0.0.1:4711"),
        ('port = 4711\nhost = "localhost"', {}, "http://localhost:4711"),
        ('port = 4711\nhost = "evil.example"', {}, "http://127.0.0.1:4711"),
        ("port = 0", {}, "http://127.0.0.1:8321"),
        ("", {"TOCSIN_PORT": LINKS["TOCSIN_PORT"]}, "http://127.0.0.1:8321"),
        ("port = 4711", {"TOCSIN_URL": "http://127.0.0.1:9"}, "http://127.0.0.1:9"),
    ],
)
def test_the_server_that_commands_talk_to_is_the_one_of_the_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, env: dict[str, str], url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOCSIN_URL")
    (tmp_path / "tocsin.toml").write_text(text)
    assert f'"url":"{url}"' in run("config", "show", "--json", env=env).output


def test_who_finds_no_server_at_the_port_of_a_file_is_told_which_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOCSIN_URL")
    (tmp_path / "tocsin.toml").write_text("port = 1")
    result = run("ls")
    assert result.exit_code == 3
    assert "no server at http://127.0.0.1:1 (port in tocsin.toml)" in result.output
    (tmp_path / "tocsin.toml").write_text("port = ")
    result = run("ls")
    assert result.exit_code == 2
    assert "tocsin.toml is not TOML" in result.output and "--url" in result.output
