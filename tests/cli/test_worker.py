"""`tocsin worker` and `tocsin workers`: what is run, what is refused, what is shown."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tocsin import Worker

from .conftest import Canned, Run

NOW = 1_900_000_000_000
WORKER: dict[str, Any] = {
    "id": "4711-9f3b0c5e7a21d4c68b90", "name": "mailer", "queues": "*", "exclude": ["reports"], "concurrency": 8,
    "status": "busy", "startedAt": NOW, "heartbeatAt": NOW,
    "jobs": [{"id": "a", "functionPath": "p", "attempt": 1, "startedAt": NOW}],
}  # fmt: skip
APP = "tests.processes.working"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The command sets up logging for its process; here it is one of many."""
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("app", "it must be module:attribute, like app:handlers"),
        ("app:", "it must be module:attribute"),
        ("no_such_module:handlers", "no_such_module cannot be imported: ModuleNotFoundError"),
        (f"{APP}:nothing", f"{APP} has no 'nothing'"),
        (f"{APP}:number", "is an int, and no Handlers"),
        (f"{APP}:wrong_factory", "gave an int, not a tocsin.Worker"),
        (f"{APP}:factory --queues mail", "makes the worker itself: --queues is said there"),
        (f"{APP}:handlers --queues a+b", "queues: a name must match"),
        (f"{APP}:handlers --queues a --exclude b", "exclude is for"),
        (f"{APP}:handlers --lease 5x", "--lease must look like"),
        (f"{APP}:handlers --lease 5ms", "lease_ms must be 1000"),
        (f"{APP}:handlers --drain soon", "--drain must look like"),
        (f"{APP}:handlers --concurrency 0", "0 is not in the range"),
        (f"{APP}:handlers --url ftp://x", "must be a URL like"),
        (f"{APP}:handlers --instance ..", "must match"),
    ],
)
def test_what_cannot_be_run_is_wrong_usage(run: Run, words: str, why: str) -> None:
    result = run("worker", *words.split())
    assert result.exit_code == 2, result.output
    assert why in " ".join(result.stderr.split())
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "drain_s"),
    [("factory", None), ("factory --drain 3s", 3), ("handlers", 25), ("handlers --drain 0", 0)],
)
def test_jobs_have_what_the_worker_says_to_end_in_if_nothing_else_is_said(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: str, drain_s: float | None
) -> None:
    from tocsin.cli import worker_process as working

    seen: list[float | None] = []

    async def ended(self: Any) -> int:
        seen.append(self._drain_s)
        return 0

    async def refused(self: Worker) -> None: ...

    monkeypatch.setattr(working._Stop, "ended", ended)
    monkeypatch.setattr(Worker, "run", refused)
    assert run("worker", *f"{APP}:{words}".split()).exit_code == 0
    assert seen == [drain_s]


@pytest.mark.parametrize("what", ["handlers", "factory"])
def test_a_token_that_may_not_work_ends_it_at_the_start(run: Run, canned: Canned, what: str) -> None:
    canned.refuse(403, "FORBIDDEN", "token 'app' has not the scope work")
    result = run("worker", f"{APP}:{what}", env={"TOCSIN_TOKEN": "hush-hush", "TOCSIN_URL": canned.url})
    assert result.exit_code == 1
    assert "token 'app' has not the scope work [FORBIDDEN]" in result.stderr
    assert "hush-hush" not in result.output


def test_workers_are_listed(run: Run, canned: Canned) -> None:
    canned.answer(
        {
            "workers": [
                WORKER,
                {**WORKER, "id": "x" * 60, "name": None, "lost": True, "queues": ["a", "b"], "exclude": [], "jobs": []},
            ],
            "truncated": False,
        }
    )
    result = run("workers")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["WORKER", "STATUS", "JOBS", "HEARD", "QUEUES"]
    assert "* but reports" in result.stdout and "1 of 8" in result.stdout
    assert "lost" in result.stdout and "a, b" in result.stdout
    assert json.loads(run("workers", "--json").stdout.splitlines()[0]) == WORKER

    canned.answers.clear()
    canned.answer({"workers": [], "truncated": False})
    assert run("workers", "--instance", "t").stderr == "no workers in t\n"
