"""Secrets and tokens of a running server: read again when told, or when their files change; whole or not at all."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tocsin.actors.testing import VirtualClock, simulate
from tocsin.cli.reloading import LOOK_EVERY_S, Reload
from tocsin.settings import load

from .processes import DEADLINE_S, Server, environment, tocsin_serve

OLD, NEW = ("whsec_" + b64encode(letter * 32).decode() for letter in (b"o", b"n"))


TAKES_ITS_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from tocsin.cli import main; main()"
"""`tocsin` whose stdin becomes its controlling terminal."""


class Folder:
    """Settings in files of one folder, and a server's view of them."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str], **environ: str) -> None:
        self.path, self._capsys = path, capsys
        self._environ = {"TOCSIN_SECRETS_FILE": "secrets", "TOCSIN_TOKENS_FILE": "tokens", **environ}
        self.put("secrets", OLD)
        self.put("tokens", "a:read:hush-hush-1")
        self.reload = Reload(self._load(), self._load)

    def _load(self) -> Any:
        environ = {name: value for name, value in self._environ.items() if value}
        return load({}, environ, directory=self.path)

    def put(self, name: str, text: str) -> None:
        """As careful programs write: beside it, then in its place."""
        beside = self.path / f".{name}"
        beside.write_text(text)
        beside.rename(self.path / name)

    def looks(self, times: int = 2) -> str:
        """What is said during so many looks."""
        for _ in range(times):
            self.reload.look()
        return self.said()

    def said(self) -> str:
        out, err = self._capsys.readouterr()
        assert out == ""
        assert "hush" not in err and OLD not in err and NEW not in err
        return err

    @property
    def held(self) -> tuple[int, int]:
        return len(self.reload.secrets()), len(self.reload.tokens())


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Folder:
    return Folder(tmp_path, capsys)


def test_nothing_is_read_or_said_while_no_file_changes(folder: Folder) -> None:
    assert folder.looks(10) == ""


def test_a_changed_file_counts_when_it_has_settled_for_two_looks(folder: Folder) -> None:
    folder.put("secrets", f"{NEW}\n{OLD}\n")
    assert folder.looks(1) == ""
    assert folder.held == (1, 1)
    assert folder.looks(1) == "tocsin: read again: 2 secrets and 1 token from now on\n"
    assert folder.reload.secrets() == (NEW, OLD)
    assert folder.looks(10) == ""


def test_a_file_written_in_place_counts_too_but_not_half_of_it(folder: Folder) -> None:
    with (folder.path / "tokens").open("w") as file:
        for n in range(5):
            file.write(f"t{n}:read:hush-hush-{n}\n")
            file.flush()
            assert folder.looks(1) == ""
    assert folder.held == (1, 1)
    assert "5 tokens" in folder.looks()


def test_a_file_behind_links_is_seen_to_change_as_in_kubernetes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mounted secret: name -> ..data/name, ..data -> a folder that is swapped as a whole."""
    for version, text in (("1", OLD), ("2", f"{NEW},{OLD}")):
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}" / "mounted").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "mounted").symlink_to("..data/mounted")
    folder = Folder(tmp_path, capsys, TOCSIN_SECRETS_FILE="mounted")
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert "2 secrets and 1 token from now on" in folder.looks()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("secrets", "", "secrets is empty"),
        ("secrets", " ,\n", "secrets is empty"),
        ("secrets", f"{NEW}\nwhsec_short", "TOCSIN_SECRETS_FILE: secret 2 of 2 "),
        ("tokens", "\n", "tokens is empty"),
        ("tokens", "b:read:hush-hush-2\na:everything:hush-hush-3", "number 2 of 2: unknown scope 'everything'"),
        ("tokens", "hush-hush-4", "must look like name:scope+scope"),
        ("tocsin.toml", "port = ", "is not TOML"),
        ("tocsin.toml", "port = 99999999", "port in "),
    ],
)
def test_what_is_wrong_is_told_once_and_changes_nothing(folder: Folder, name: str, text: str, words: str) -> None:
    folder.put(name, text)
    said = folder.looks()
    assert said.startswith("tocsin: read again, and wrong, so 1 secret and 1 token of before stay in force: ")
    assert words in said
    assert folder.looks(5) == ""
    assert folder.held == (1, 1)
    folder.reload.ask()
    assert words in folder.said()  # who asks is answered

    folder.put(name, {"secrets": OLD, "tokens": "a:read:hush-hush-1"}.get(name, ""))
    assert folder.looks() == "tocsin: read again: 1 secret and 1 token, as before\n"


def test_a_file_that_is_gone_is_told_of_and_read_when_it_is_back(folder: Folder) -> None:
    (folder.path / "tokens").unlink()
    assert "cannot be read: No such file" in folder.looks()
    assert folder.looks(5) == ""
    assert folder.held == (1, 1)
    folder.put("tokens", "a:read:hush-hush-1\nb:read:hush-hush-2")
    assert "2 tokens from now on" in folder.looks()


@pytest.mark.parametrize(("setting", "word"), [("TOCSIN_SECRETS_FILE", "SECRETS"), ("TOCSIN_TOKENS_FILE", "TOKENS")])
def test_a_protection_that_is_there_is_not_taken_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, word: str
) -> None:
    (tmp_path / "tocsin.toml").write_text(f'{setting.removeprefix("TOCSIN_").lower()} = "{word.lower()}"')
    folder = Folder(tmp_path, capsys, **{setting: ""})
    folder.put("tocsin.toml", f"{word.lower()} = []")
    assert f"TOCSIN_{word} are given no more" in folder.looks()
    (tmp_path / "tocsin.toml").unlink()
    assert folder.looks() == ""  # still wrong, for the same reason
    assert folder.held == (1, 1)


def test_a_protection_may_be_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path, capsys, TOCSIN_SECRETS_FILE="", TOCSIN_TOKENS_FILE="")
    assert folder.held == (0, 0)
    folder.put("tocsin.toml", f'secrets = ["{NEW}"]\ntokens_file = "tokens"')
    assert "1 secret and 1 token from now on" in folder.looks()
    folder.put("tokens", "a:read:hush-hush-1\nb:read:hush-hush-2")  # watched since the other named it
    assert "2 tokens from now on" in folder.looks(3)


def test_a_file_that_a_config_names_before_it_is_there_is_taken_when_it_comes(folder: Folder) -> None:
    folder._environ["TOCSIN_SECRETS_FILE"] = ""
    folder.put("tocsin.toml", 'secrets_file = "later"')
    assert "later cannot be read" in folder.looks()
    folder.put("later", f"{NEW}\n{OLD}")
    assert "2 secrets and 1 token from now on" in folder.looks()


def test_what_needs_a_restart_is_named_and_not_taken(folder: Folder) -> None:
    folder.put("tocsin.toml", 'port = 99\nstore = "sqlite:///other.db"\nlanes = 64')
    folder.put("tokens", "a:read:hush-hush-1\nb:read:hush-hush-2")
    said = folder.looks()
    assert said == (
        "tocsin: read again: 1 secret and 2 tokens from now on; store, port changed too: that needs a restart\n"
    )
    assert (folder.reload.settings.port, folder.reload.settings.store) == (8321, "sqlite:///tocsin.db")


def test_who_asks_is_answered_at_once(folder: Folder) -> None:
    folder.reload.ask()
    assert folder.said() == "tocsin: read again: 1 secret and 1 token, as before\n"
    folder.put("tokens", "a:read:hush-hush-1\nb:read:hush-hush-2")
    folder.reload.ask()
    assert folder.said() == "tocsin: read again: 1 secret and 2 tokens from now on\n"
    assert folder.looks(5) == ""


def test_a_pipe_is_not_read_again(folder: Folder) -> None:
    (folder.path / "tokens").unlink()
    os.mkfifo(folder.path / "tokens")
    folder.reload.ask()  # would wait for a writer for ever
    assert "tokens is no file that could be read again" in folder.said()
    assert folder.held == (1, 1)


def test_the_files_are_looked_at_on_the_clock(folder: Folder) -> None:
    async def main(random: Random) -> None:
        clock = VirtualClock()
        looked: list[int] = []
        folder.reload.look = lambda: looked.append(clock.now_ms())  # type: ignore[method-assign]
        watched = asyncio.create_task(folder.reload.watch(clock))
        await clock.sleep(10.5)
        watched.cancel()
        assert len(looked) == 10.5 // LOOK_EVERY_S

    simulate(1, main)


def test_a_closed_stderr_does_not_stop_a_reload(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(words: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("tocsin.cli.reloading.say", gone)
    folder.put("tokens", "a:read:hush-hush-1\nb:read:hush-hush-2")
    folder.reload.ask()
    assert folder.held == (1, 2)


# ---- Real processes ------------------------------------------------------------------------------


def test_a_server_on_all_addresses_keeps_its_tokens_when_their_file_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("eye:read:" + "o" * 32)
    with tocsin_serve("--host", "0.0.0.0", "--tokens-file", "tokens", cwd=tmp_path) as server:
        url = server.url().replace("0.0.0.0", "127.0.0.1") + "/status"

        def status(letter: str) -> int:
            return httpx.get(url, headers={"authorization": "Bearer " + letter * 32}).status_code

        (tmp_path / "tokens").write_text("")
        server.process.send_signal(signal.SIGHUP)
        assert "1 token of before stay in force: --tokens-file: tokens is empty" in server.line_with("read again")
        assert (status("o"), httpx.get(url).status_code) == (200, 401)
        (tmp_path / "tokens").write_text("eye:read:" + "n" * 32)
        assert "1 token from now on" in server.line_with("read again")  # without being told
        assert (status("o"), status("n")) == (401, 200)
        assert server.stop() == 0


@pytest.mark.parametrize("terminal", [True, False])
def test_closing_its_terminal_stops_a_server_in_good_order(tmp_path: Path, terminal: bool) -> None:
    """SIGHUP means both; without a terminal it only reads again."""
    if not terminal:
        with tocsin_serve(cwd=tmp_path) as server:
            server.url()
            server.process.send_signal(signal.SIGHUP)
            server.line_with("0 secrets and 0 tokens, as before")
            assert server.stop() == 0
        return
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKES_ITS_TERMINAL, "serve", "--port", "0"],
        cwd=tmp_path,
        env=environment(),
        stdin=follower,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    os.close(follower)
    server = Server(process)
    try:
        server.url()
        process.send_signal(signal.SIGHUP)
        server.line_with("0 secrets and 0 tokens, as before")
        os.close(leader)
        server.line_with("tocsin: stopping")
        assert process.wait(DEADLINE_S) == 0
    finally:
        server.end()


@pytest.mark.parametrize("text", ["port = " + "9" * 5_000, "x = " + "[" * 20_000, 'tokens_file = "a\\u0000b"'])
def test_a_file_that_no_parser_takes_does_not_end_the_looking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    folder = Folder(tmp_path, capsys, TOCSIN_TOKENS_FILE="")
    folder.put("tocsin.toml", text)
    assert "tocsin: read again, and wrong, so 1 secret and 0 tokens of before stay in force" in folder.looks(3)

    folder.put("tocsin.toml", "port = 8321")
    folder.put("secrets", f"{NEW},{OLD}")
    assert "2 secrets" in folder.looks(3)
