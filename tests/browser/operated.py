"""A real `tocsin serve` with a real receiver, for people to look at: its address, its tokens, what its receiver is to
answer."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cli.processes import tocsin_serve
from tests.processes.server_process import SECRET, TOKEN, ask, receiver_process

READER: Final = "a-token-that-reads"
BATCH: Final = 1_000


@dataclass(frozen=True)
class Operated:
    """One server and its receiver."""

    url: str
    receiver: str
    process: subprocess.Popen[str]
    """That of the server."""

    def ask(self, route: str, body: object = None, method: str | None = None, instance: str = "default") -> Any:
        """Ask the API, as somebody who may do anything."""
        return ask(self.url + ("" if instance == "default" else f"/i/{instance}"), route, body, method)

    def schedule(self, jobs: list[dict[str, Any]], instance: str = "default") -> None:
        for start in range(0, len(jobs), BATCH):
            answer = self.ask("/schedule/batch", {"jobs": jobs[start : start + BATCH]}, instance=instance)
            refused = [one["error"] for one in answer["results"] if "error" in one]
            assert not refused, refused[0]

    def answers(self, **by_path: dict[str, Any]) -> None:
        """Tell the receiver what to answer; paths that are not named are answered 200."""
        request = urllib.request.Request(f"{self.receiver}/answers", json.dumps(by_path).encode(), method="PUT")
        urllib.request.urlopen(request, timeout=10).close()

    def came(self) -> dict[str, int]:
        """How many callbacks came, by path and status."""
        with urllib.request.urlopen(f"{self.receiver}/came", timeout=10) as answer:
            found: dict[str, int] = json.load(answer)
        return found


@contextmanager
def operated(folder: Path, **settings: str) -> Iterator[Operated]:
    """Run both until the block ends; the tokens are an admin's (`TOKEN`) and a reader's."""
    tokens = f"operator:admin:{TOKEN},reader:read:{READER}"
    with receiver_process("tests.browser.switched_receiver") as origin:
        options = {
            "TOCSIN_STORE": "sqlite:///operated.db",
            "TOCSIN_ORIGIN_URL": origin,
            "TOCSIN_SECRETS": SECRET,
            "TOCSIN_TOKENS": tokens,
        }
        with tocsin_serve(cwd=folder, **{**options, **settings}) as server:
            yield Operated(server.url(), origin, server.process)
