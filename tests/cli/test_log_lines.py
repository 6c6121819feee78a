"""The log of commands: lines for people that stay lines, and JSON that is always JSON."""

from __future__ import annotations

import json
import logging
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.processes import tocsin, tocsin_serve
from tests.spans import Spans
from tocsin.cli.keys import new_secret
from tocsin.cli.log_lines import JsonLines, TextLines


def record(message: str, *args: object, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord(more.pop("name", "tocsin.scheduler"), logging.WARNING, "x.py", 1, message, args, None)
    made.created = 1_796_059_983.5
    vars(made).update(more)
    return made


def written(made: logging.LogRecord) -> dict[str, Any]:
    text = JsonLines().format(made)
    assert "\n" not in text
    read: dict[str, Any] = json.loads(text)
    return read


def test_a_record_and_its_fields_are_one_object() -> None:
    assert written(record("job %s died", "a", instance="shop", id="a", attempt=2, status=None)) == {
        "time": "2026-11-30T17:33:03.500Z", "level": "warning", "logger": "tocsin.scheduler", "message": "job a died",
        "instance": "shop", "id": "a", "attempt": 2, "status": None,
    }  # fmt: skip


def test_fields_do_not_take_the_place_of_the_records_own() -> None:
    assert written(record("said", time=0, level="none", logger="other"))["logger"] == "tocsin.scheduler"


class Broken:
    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("half \ud800 of\na line\u2028\x1b[31m", "half \\ud800 of\na line\u2028\x1b[31m"),
        (10**40, 10**40),
        (b"\xff", None),
        ({"a": "\ud800"}, "{'a': '\\ud800'}"),
        (Broken(), None),
        (float("nan"), None),
    ],
)
def test_whatever_a_field_holds_the_line_is_written(value: object, shown: object) -> None:
    said = written(record("said", what=value, id="a"))

    assert said["id"] == "a" and said["message"] == "said"
    if shown is not None:
        assert said["what"] == shown


def test_exceptions_and_stacks_are_members() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        made = record("failed", exc_info=sys.exc_info(), stack_info="Stack")

    said = written(made)
    assert said["exception"].startswith("Traceback") and said["exception"].endswith("ValueError: two\nlines")
    assert said["stack"] == "Stack"


def test_a_line_of_the_access_log_has_fields() -> None:
    said = written(record('%s - "%s %s HTTP/%s" %d', "1.2.3.4:5", "GET", "/status", "1.1", 200, name="uvicorn.access"))

    assert said["message"] == '1.2.3.4:5 - "GET /status HTTP/1.1" 200'
    assert (said["client"], said["method"], said["target"], said["status"]) == ("1.2.3.4:5", "GET", "/status", 200)


def test_the_span_in_which_a_line_is_written_is_named_unless_the_record_has_a_trace() -> None:
    spans = Spans()
    with spans.tracer.start_as_current_span("handler") as span:
        here, given = written(record("said")), written(record("said", trace_id="f" * 32))

    assert here["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert here["span_id"] == f"{span.get_span_context().span_id:016x}"
    assert given["trace_id"] == "f" * 32 and "span_id" not in given
    assert "trace_id" not in written(record("said"))


def test_a_line_for_people_is_one_line_whatever_it_quotes() -> None:
    text = TextLines().format(record("said %s", "two\nlines \x1b[31m\ud800"))

    assert text.endswith("WARNING tocsin.scheduler: said two\\nlines \\x1b[31m\\ud800")


def test_a_server_logs_objects_only_and_no_secret(tmp_path: Path) -> None:
    secret, token, heartbeat = new_secret(), "t" * 40, "hush-the-heartbeat"
    with tocsin_serve(
        "--log-format", "json", "--log-level", "debug", "--access-log", "--origin-url", "http://127.0.0.1:9",
        cwd=tmp_path, TOCSIN_SECRETS=secret, TOCSIN_TOKENS=f"eye:admin:{token}",
        TOCSIN_HEARTBEAT_URL=f"http://127.0.0.1:9/{heartbeat}",
    ) as server:  # fmt: skip
        url = server.url()
        with httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}) as http:
            body = {"functionPath": "a:b", "delayMs": 0, "id": "one", "queue": "q", "args": {"password": "hush"}}
            http.post("/schedule", json=body)
            lease = http.post("/queues/q/claim", json={"waitMs": 0}).json()["jobs"][0]["lease"]
            http.post("/complete", json={"id": "one", "lease": lease})
            http.post("/schedule", json={**body, "queue": None})
            http.get("/status", headers={"authorization": f"Bearer {token[:-1]}x"})
        server.stop()
        server.lines += server.rest()
    lines = [json.loads(line) for line in server.lines]

    assert {line["logger"] for line in lines} >= {"tocsin", "tocsin.scheduler", "uvicorn.access", "uvicorn.error"}
    assert [line["change"] for line in lines if line.get("id") == "one"][:3] == ["accepted", "started", "done"]
    text = "\n".join(server.lines)
    assert not [one for one in (secret, secret[6:], token, token[:-1], heartbeat, lease, "hush") if one in text]


def test_the_format_comes_from_a_file_too_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "tocsin.toml").write_text('log_format = "xml"')
    refused = tocsin("run", "--once", "--store", "memory:", cwd=tmp_path)

    assert refused.returncode == 2 and "must be text or json, not 'xml'" in refused.stderr


def test_why_a_command_fails_is_an_error_in_the_log(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        in_use = tocsin("serve", "--log-format", "json", "--port", str(taken.getsockname()[1]), cwd=tmp_path)
    wrong = {command: tocsin(*command.split(), cwd=tmp_path, **env) for command, env in WRONG.items()}

    assert in_use.returncode == 5 and all(one.returncode == 2 for one in wrong.values())
    said = {}
    for name, one in {"in use": in_use, **wrong}.items():
        [line] = [json.loads(line) for line in one.stderr.splitlines()]
        said[name] = line["message"]
        assert line["level"] == "error" and line["logger"] == "tocsin"
    assert not [one for one in said.values() if one.startswith("Error")]
    assert "is in use" in said["in use"] and "TOCSIN_TOKENS" in said["serve"] and "TOCSIN_LANES" in said["run --once"]


WRONG = {
    "serve": {"TOCSIN_LOG_FORMAT": "json", "TOCSIN_TOKENS": "bad"},
    "run --once": {"TOCSIN_LOG_FORMAT": "json", "TOCSIN_LANES": "many"},
}
"""Commands with settings that are wrong."""
