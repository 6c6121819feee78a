"""The apps on the pages, under `uvicorn --workers 2`: one process holds the store, the other takes over, none ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import Server, environment
from tests.processes.server_process import free_port
from tests.processes.test_disk_workers import ask
from tocsin.cli.keys import new_secret
from tocsin.storage.sqlite.lock import holder_of

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
WHO = """

@app.get("/who")
def who() -> int:
    import os

    return os.getpid()
"""


def shown(page: str) -> str:
    """The app on a page: its blocks up to the one that makes it."""
    blocks = BLOCK.findall((DOCS / page).read_text("utf-8"))
    [app] = [block for block in blocks if "FastAPI(lifespan=" in block]
    assert "async with host:" not in app and "async with host," not in app
    return str(app)


@pytest.mark.parametrize("page", ["schedules.md", "workers.md"])
def test_an_app_as_the_pages_show_it_survives_several_workers(tmp_path: Path, page: str) -> None:
    text = shown(page).replace(
        'ActorHost.open("sqlite:///jobs.db")', 'ActorHost.open("sqlite:///jobs.db", insecure=True)'
    )
    (tmp_path / "app.py").write_text(text + WHO)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "app:app", "--no-access-log", "--workers", "2", "--port", str(port)],
        cwd=tmp_path, env=environment(TOCSIN_SECRETS=new_secret()), stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    server = Server(process)
    try:
        for _ in range(2):
            server.line_with("Application startup complete")
        holder, _ = holder_of(tmp_path / "jobs.db.lock")
        assert holder is not None
        os.kill(holder, signal.SIGKILL)
        server.line_with("has taken it over")
        assert ask(port, "/who") != holder
        assert server.stop() == 0
        said = "\n".join([*server.lines, *server.rest()])
        assert "Traceback" not in said and "startup failed" not in said, said
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: nobody but it and its workers
        server.end()
