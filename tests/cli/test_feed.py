"""`tocsin changes`: what it prints as jobs change, and what it does about a server that it loses."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tocsin.cli import feed
from tocsin.cli.failure import Unreachable

from .conftest import Canned, Run

SNAPSHOT = {"type": "snapshot", "seq": "aa-1", "status": {"backlog": 0, "inFlight": 0, "dead": 0}, "jobs": []}
JOB = {"id": "invoice-42", "state": "running", "attempt": 1, "functionPath": "invoices:send", "scheduledFor": 1}
CHANGE = {"type": "change", "seq": "aa-2", "jobs": [JOB], "gone": []}
AFTER = {"type": "resync", "seq": "bb-0"}


def page(*frames: Mapping[str, object]) -> dict[str, object]:
    return {"frames": list(frames), "seq": frames[-1]["seq"]}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody waits here: the clock goes on by what would have been waited for."""
    waited: list[float] = []
    monkeypatch.setattr(feed, "sleep", waited.append)
    monkeypatch.setattr(feed, "monotonic", lambda: sum(waited))
    return waited


def test_a_server_that_is_lost_is_asked_again_until_it_is_back(run: Run, canned: Canned, waits: list[float]) -> None:
    canned.answer(page(SNAPSHOT, CHANGE))
    canned.answer("<html>bad gateway</html>", status=502)
    canned.refuse(503, "UNAVAILABLE", "the host stops")
    canned.answer(page(AFTER, {**SNAPSHOT, "seq": "bb-1"}))
    result = run("changes", "--frames", "4")

    assert result.exit_code == 0 and waits == [1, 1]
    assert result.stdout == "running   invoice-42  invoices:send  attempt 1\n"
    said = result.stderr.splitlines()
    assert said[1].startswith("the server was lost, and is asked again until it is back: what answers at ")
    assert said[2:] == [
        "the server is back after 2 s", "what was shown before may have changed unnoticed: a snapshot follows",
        "0 waiting, 0 running, 0 dead", "to go on from here: --since bb-1",
    ]  # fmt: skip
    assert ["since=aa-2" in one.path for one in canned.requests] == [False, True, True, True]


def test_patience_ends(run: Run, canned: Canned, waits: list[float]) -> None:
    canned.answer(page(SNAPSHOT))
    canned.answer("", status=502)
    result = run("changes", "--patience", "3s")

    assert result.exit_code == Unreachable.exit_code and waits == [1, 1, 1]
    assert result.stderr.count("was lost") == 1 and "to go on from here: --since aa-1" in result.stderr


@pytest.mark.parametrize("options", [["--since", "aa-0"], []])
def test_a_server_that_was_never_there_is_not_waited_for(
    run: Run, canned: Canned, waits: list[float], options: list[str]
) -> None:
    canned.answer("", status=502)
    result = run("changes", *options)

    assert result.exit_code == Unreachable.exit_code and waits == [] and "was lost" not in result.stderr


def test_what_the_server_refuses_ends_it(run: Run, canned: Canned, waits: list[float]) -> None:
    canned.answer(page(SNAPSHOT))
    canned.refuse(403, "FORBIDDEN", "token 'x' may not")
    result = run("changes", "--json")

    assert result.exit_code == 1 and waits == [] and "to go on" not in result.stderr


def test_it_goes_on_behind_the_frame_that_was_printed_last(run: Run, canned: Canned) -> None:
    canned.answer(page(SNAPSHOT, CHANGE))
    assert run("changes", "--frames", "1").stderr.splitlines()[-1] == "to go on from here: --since aa-1"
    canned.answers[:] = [(200, {**page(SNAPSHOT), "ended": True})]
    assert run("changes").stderr.splitlines()[-1] == "default was removed"
