"""The examples of the frameworks, each really started, by the server that its page names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cli.processes import tocsin_serve
from tests.examples.example_process import EXAMPLES, running
from tests.examples.reminders import PYTHON, app, free_port, tell
from tocsin.cli.keys import new_secret

UVICORN: Final = (*PYTHON, "uvicorn", "--port", "{port}", "--log-level", "warning")
GRANIAN: Final = (*PYTHON, "granian", "--interface", "asgi", "--port", "{port}", "--log-level", "warning")
COMMANDS: Final = {
    "fastapi": (*UVICORN, "--workers", "2", "reminders_fastapi:app"),
    "starlette": (*UVICORN, "reminders_starlette:app"),
    "litestar": (*GRANIAN, "reminders_litestar:app"),
    "aiohttp": (sys.executable, str(EXAMPLES / "reminders_aiohttp.py")),
    "django": (*UVICORN, "reminders_django:application"),
}

BLOCKING: Final = {
    "flask": (*PYTHON, "gunicorn", "--threads", "4", "--bind", "127.0.0.1:{port}",
              "reminders_flask:create_app()"),
    "django-wsgi": (sys.executable, str(EXAMPLES / "reminders_django_wsgi.py"), "runserver", "--noreload", "{port}"),
}  # fmt: skip


@pytest.mark.parametrize("framework", COMMANDS)
def test_reminders_of_an_asyncio_framework(framework: str, tmp_path: Path) -> None:
    with app(COMMANDS[framework], cwd=tmp_path, port=free_port(), secret=new_secret()) as running:
        tell(running)


@pytest.mark.parametrize("framework", BLOCKING)
def test_reminders_of_a_framework_that_blocks(framework: str, tmp_path: Path) -> None:
    port, secret, token = free_port(), new_secret(), new_secret()
    secrets = {"TOCSIN_SECRETS": secret, "TOCSIN_TOKENS": f"app:read+schedule:{token}"}
    with (
        tocsin_serve("--origin-url", f"http://127.0.0.1:{port}", cwd=tmp_path, **secrets) as server,
        app(BLOCKING[framework], cwd=tmp_path, port=port, secret=secret, server=server.url(), token=token) as running,
    ):
        tell(running)
        assert server.stop() == 0


def test_reminders_without_a_framework(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "reminders_asyncio.py"), "0s", "tea"]
    with running(command, cwd=tmp_path, TOCSIN_SECRETS=new_secret(), PORT=str(free_port())) as program:
        assert program.process.wait(30) == 0
        lines = program.lines_so_far()

    assert sorted(lines) == ["ahead: tea, not today", "cancelled: True", "to ada: tea"]
