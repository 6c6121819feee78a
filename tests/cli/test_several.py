"""`tocsin submit`, `claim`, `schedules register`, `instances set` and `health`, against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest

from tests.actors.client.doors import house

from .conftest import Run

HERE = Path(__file__).parent


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A host's scheduler `t` behind a server that commands find, and what calls its coroutines."""
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(house("server")) as found,
    ):
        for name, value in (("URL", found.url), ("TOKEN", "secret-ops"), ("INSTANCE", "t")):
            monkeypatch.setenv(f"TOCSIN_{name}", value)
        yield lambda ask: portal.call(ask, found.host.scheduler("t"))


def test_jobs_of_a_file_are_scheduled_and_those_refused_are_told_by_their_line(
    run: Run, served: Any, tmp_path: Path
) -> None:
    done = run("submit", str(HERE / "jobs.jsonl"))
    assert done.exit_code == 0 and done.stdout.split()[0] == "invoice-42" and len(done.stdout.split()) == 2
    assert done.stderr == "scheduled 2 jobs\n"
    again = run("submit", str(HERE / "jobs.jsonl"))
    assert again.exit_code == 1 and len(again.stdout.split()) == 1
    assert "line 1: id 'invoice-42' is taken" in again.stderr and "1 job of 2 was refused" in again.stderr
    lines = tmp_path / "many.jsonl"
    lines.write_text(
        "\n".join(json.dumps({"functionPath": "a:b", "delayMs": 10**6, "queue": "q"}) for _ in range(1_001))
    )
    shown = run("submit", str(lines), "--json")
    assert [json.loads(line)["created"] for line in shown.stdout.splitlines()] == [True] * 1_001
    for text, words in (("", "holds no jobs"), ("{}\n{", "line 2 is not JSON"), ("5", "line 1 must be a JSON object")):
        lines.write_text(text)
        wrong = run("submit", str(lines))
        assert wrong.exit_code == 2 and words in wrong.stderr
    assert run("submit", str(tmp_path / "none")).exit_code == 2


def test_work_is_claimed_and_settled_in_a_shell(run: Run, served: Any) -> None:
    none = run("claim", "mail")
    assert (none.exit_code, none.stdout, none.stderr) == (1, "", "no job of mail is due in t\n")
    served(lambda jobs: jobs.run_after(0, "a:b", id="a", queue="mail", keep_result="1h"))
    got = run("claim", "mail,pdf", "--lease", "5m", "--wait", "5s")
    id, lease = got.stdout.split()
    assert (got.exit_code, id) == (0, "a") and "a is attempt 1 of a:b" in got.stderr
    assert run("complete", id, lease, "--result", "[1]").exit_code == 0
    assert run("result", "a").stdout == "[1]\n"
    served(lambda jobs: jobs.run_after(0, "a:b", id="b", queue="pdf"))
    assert run("claim", "--exclude", "pdf").exit_code == 1
    assert json.loads(run("claim", "--json").stdout)["id"] == "b"


def test_a_set_of_schedules_is_registered_from_a_file(run: Run, served: Any, tmp_path: Path) -> None:
    made = run("schedules", "register", "app", str(HERE / "schedules.json"))
    assert (made.exit_code, made.stdout) == (0, "app:report\n")
    assert "registered 1 schedule of app" in made.stderr
    empty = tmp_path / "none.json"
    empty.write_text("[]")
    kept = run("schedules", "register", "app", str(empty))
    assert "kept (--prune removes them): app:report" in kept.stderr
    assert run("schedules", "register", "app", str(empty), "--prune").exit_code == 2  # nobody to ask
    gone = run("schedules", "register", "app", str(empty), "--prune", "--yes", "--json")
    assert json.loads(gone.stdout) == {"schedules": [], "orphaned": [], "removed": ["app:report"]}
    empty.write_text("{}")
    assert "must be a JSON list" in run("schedules", "register", "app", str(empty)).stderr


def test_an_instance_has_a_deadline_and_a_server_its_health(run: Run, served: Any) -> None:
    said = run("instances", "set", "t", "--timeout", "2m")
    assert (said.exit_code, said.stderr) == (0, "callbacks of t may take 2m\n")
    assert served(lambda jobs: jobs.set_instance(paused=False)).timeout_ms == 120_000
    assert "as long as the server says" in run("instances", "set", "t", "--timeout", "0s").stderr
    assert run("health").stderr == "ready\n" and json.loads(run("health", "--json").stdout)["ready"] is True
