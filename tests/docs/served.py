"""An app of a page, run as the page says."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from tests.examples.example_process import DEADLINE_S, Program, running

SETTINGS: Final = {
    "TOCSIN_SECRETS": ",".join("whsec_" + letter * 32 for letter in "ab"),
    "TOCSIN_TOKENS": "ops:admin:choose-a-long-secret",
}
ENVIRONMENT: Final = {
    **{name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")},
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    **SETTINGS,
}


@contextmanager
def served(folder: Path, *options: str, **files: str) -> Iterator[tuple[httpx.Client, Program]]:
    """Run `app:app` with uvicorn on a port that is free here: in the place of 8000, where callbacks go too."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text.replace(":8000", f":{port}"), "utf-8")
        command = [sys.executable, "-m", "uvicorn", "app:app", "--fd", str(listener.fileno()), *options]
        with (
            running(command, cwd=folder, pass_fds=[listener.fileno()], **SETTINGS) as app,
            httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=DEADLINE_S) as http,
        ):
            try:
                yield http, app
            finally:
                app.stop()  # in order: workers of uvicorn outlive a parent that is killed
