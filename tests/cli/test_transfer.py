"""`tocsin export`, `import` and `move`: between servers and stores, also when the command is stopped on its way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Canned, Run
from tests.cli.processes import tocsin_serve
from tocsin.actors.actor_host import ActorHost
from tocsin.cli import places
from tocsin.cli.failure import Refused, StoreUnusable, WrongSettings
from tocsin.cli.move import _same_server


def made(path: Path, *names: str) -> str:
    """A store with a job and a schedule in each of these instances; its URL."""
    url = f"sqlite:///{path}"

    async def fill() -> None:
        async with ActorHost.open(url, dispatch=False, share=False) as host:
            for name in names:
                jobs = host.scheduler(name)
                await jobs.run_after("1h", "work", {"n": 1}, id="a", queue="q")
                await jobs.schedules.put("daily", cron="@daily", path="tick", queue="q")

    asyncio.run(fill())
    return url


def backlog(url: str, name: str) -> int:
    async def ask() -> int:
        async with ActorHost.open(url, dispatch=False, share=False) as host:
            return (await host.scheduler(name).status()).backlog

    return asyncio.run(ask())


def state(url: str, name: str) -> Any:
    async def ask() -> Any:
        async with ActorHost.open(url, dispatch=False, share=False) as host:
            return await host.transfer_state(name)

    return asyncio.run(ask())


def test_a_store_is_exported_to_stdout_and_imported_into_another(run: Run, tmp_path: Path) -> None:
    old, new = made(tmp_path / "old.db", "t", "u"), f"sqlite:///{tmp_path / 'new.db'}"
    before = sorted(tmp_path.iterdir())
    out = run("export", "--store", old, "--instance", "t")
    assert out.exit_code == 0, out.output
    assert sorted(tmp_path.iterdir()) == before  # it was only read
    assert "exported t: 1 job" in out.stderr

    file = tmp_path / "t.jsonl"
    file.write_bytes(out.stdout_bytes)
    into = run("import", str(file), "--store", new, "--instance", "x", "--json")

    assert into.exit_code == 0, into.output
    assert json.loads(into.stdout)["rows"] == json.loads(out.stdout.splitlines()[0])["rows"]
    assert backlog(new, "x") == 1
    again = run("import", "instance", str(file), "--store", new, "--instance", "x")
    assert (again.exit_code, "exists" in again.stderr) == (Refused.exit_code, True)


def test_a_file_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    old, file = made(tmp_path / "old.db", "t"), tmp_path / "t.jsonl"
    file.write_text("mine")
    out = run("export", str(file), "--store", old, "--instance", "t")
    assert (out.exit_code, file.read_text()) == (WrongSettings.exit_code, "mine")


def test_a_store_that_a_server_has_is_exported_and_nothing_is_put_into_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = ("--store", "sqlite:///jobs.db")

    def done(*words: str) -> str:
        ended = run(*words)
        assert ended.exit_code == 0, ended.stderr
        return ended.stdout

    with tocsin_serve(*store, "--insecure", "--origin-url", "http://127.0.0.1:9", cwd=tmp_path) as server:
        url = server.url()
        at = ("--url", url, "--instance")
        done("schedule", "p", "--in", "1h", *at, "t")
        done("export", "t.jsonl", *store, "--instance", "t")
        kept = run("import", "t.jsonl", *store, "--instance", "u")
        assert (kept.exit_code, "in use by process" in kept.stderr) == (StoreUnusable.exit_code, True)
        done("import", "t.jsonl", *at, "u")
        told = done("move", url, url, "--instance", "u", "--as", "v", "--remove", "--json")
        assert json.loads(told)["moved"] is True
        listed = done("instances", "--url", url, "--json")
        assert [json.loads(line)["name"] for line in listed.splitlines()] == ["t", "v"]
        done("move", url, "sqlite:///other.db", "--instance", "t", "--drain", "1s")
        refused = run("schedule", "p", "--in", "1h", *at, "t")
        assert "has moved to sqlite:///other.db" in refused.stderr
    assert backlog(f"sqlite:///{tmp_path / 'other.db'}", "t") == 1


STEPS = ["seal", "closed", "begun", "half", "loaded", "remove"]
"""Where the command is stopped: when this has been done."""


class Stopped(Exception):
    """Stands for a kill."""


def stopping(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Let the command end behind a step."""
    place = places.StorePlace

    def behind(name: str, at: Callable[[dict[str, Any]], bool]) -> None:
        real: Callable[..., Awaitable[Any]] = getattr(place, name)

        async def ends(self: Any, *args: Any, **named: Any) -> Any:
            done = await real(self, *args, **named)
            if at(named):
                raise Stopped
            return done

        monkeypatch.setattr(place, name, ends)

    if step in ("seal", "closed"):
        behind("seal", lambda named: named["closed"] == (step == "closed"))
    elif step in ("loaded", "remove"):
        behind("load" if step == "loaded" else "remove", lambda named: True)
    else:
        monkeypatch.setattr(place, "load", _half if step == "half" else _begun)


async def _begun(self: Any, name: str, pieces: Any, **options: Any) -> None:
    await self._host.transfers(name).begin_import("dead")
    raise Stopped


async def _half(self: Any, name: str, pieces: Any, **options: Any) -> None:
    await self._host.transfers(name).begin_import("dead")
    await self._host.transfers(name).import_rows("dead", [(b"job/x", b"half")])
    raise Stopped


@pytest.mark.parametrize("step", STEPS)
def test_a_move_that_is_stopped_anywhere_goes_on_and_at_no_time_both_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    old, new = made(tmp_path / "old.db", "t", "u"), f"sqlite:///{tmp_path / 'new.db'}"
    command = ("move", old, new, "--instance", "t", "--as", "x", "--remove")
    with monkeypatch.context() as patch:
        stopping(patch, step)
        assert isinstance(run(*command).exception, Stopped)

    left, came = state(old, "t"), state(new, "x")
    runs_there = came.imported is not None and not came.importing
    assert runs_there == (step in ("loaded", "remove"))
    assert left.sealed or not left.exists or (step == "seal" and left.move)
    done = run(*command)
    assert done.exit_code == 0, done.output
    assert not state(old, "t").exists
    assert (backlog(new, "x"), backlog(old, "u")) == (1, 1)
    assert run("check", "--store", new).exit_code == 0
    assert run(*command).exit_code == 0  # once more changes nothing


@pytest.mark.parametrize("step", STEPS[:4])
def test_a_move_can_be_given_up_until_it_has_arrived(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    old, new = made(tmp_path / "old.db", "t"), f"sqlite:///{tmp_path / 'new.db'}"
    with monkeypatch.context() as patch:
        stopping(patch, step)
        run("move", old, new, "--instance", "t")
    given_up = run("move", old, new, "--instance", "t", "--abort")
    assert given_up.exit_code == 0, given_up.output
    assert (state(old, "t").move, state(new, "t").exists) == (None, False)
    assert run("move", old, new, "--instance", "t", "--abort").exit_code == Refused.exit_code

    assert run("move", old, new, "--instance", "t").exit_code == 0
    late = run("move", old, new, "--instance", "t", "--abort")
    assert (late.exit_code, "runs at" in late.stderr) == (Refused.exit_code, True)
    assert run("check", "--store", old).exit_code == 0


def test_a_move_that_cannot_be_leaves_everything_as_it_was(run: Run, tmp_path: Path) -> None:
    old, new = made(tmp_path / "old.db", "t"), made(tmp_path / "new.db", "t")
    taken = run("move", old, new, "--instance", "t")
    assert (taken.exit_code, "already" in taken.stderr) == (Refused.exit_code, True)
    assert state(old, "t").move is None
    assert run("move", old, new, "--instance", "nobody").exit_code == Refused.exit_code
    assert run("move", old, old, "--instance", "t").exit_code == WrongSettings.exit_code
    assert run("move", old, "sqlite:nowhere", "--instance", "t").exit_code == WrongSettings.exit_code


@pytest.mark.parametrize(
    ("options", "sent"),
    [([], None), (["--target-token", "theirs-theirs"], "Bearer theirs-theirs")],
)
def test_the_token_of_one_server_is_not_sent_to_another(
    run: Run, canned: Canned, tmp_path: Path, options: list[str], sent: str | None
) -> None:
    canned.refuse(401, "UNAUTHENTICATED", "no token")
    old = made(tmp_path / "old.db", "t")
    result = run("move", old, canned.url, "--instance", "t", "--token", "ours-ours-ours", *options)
    assert result.exit_code == Refused.exit_code
    assert {one.headers.get("authorization") for one in canned.requests} == {sent}
    assert ("is not sent to TARGET" in result.stderr) == (sent is None)


def test_one_server_is_known_by_scheme_host_and_port() -> None:
    assert _same_server("https://a.example", "https://A.example:443/x")
    for other in ("http://a.example:443", "https://a.example:8443", "https://b.example", "https://a.example:x"):
        assert not _same_server("https://a.example", other)
    assert not _same_server("sqlite:///a.db", "sqlite:///a.db")
