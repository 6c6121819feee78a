"""Hosts of one shared store as processes: `tocsin serve` each, to be killed, stopped, drained and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cli.processes import COMMAND, environment
from tests.postgres import free_port
from tests.processes.server_process import SECRET, TOKEN, ask
from tests.waiting import wait_until

START_S: Final = 60.0
"""On a machine that is busy with all of them."""
END_S: Final = 30.0


@dataclass(frozen=True)
class Place:
    """Where a host runs: at which address, and by which words `tocsin` is started there."""

    address: str = "127.0.0.1"
    command: Sequence[str] = COMMAND


class HostProcess:
    """One `tocsin serve`, again and again on the same port. Its words are kept in a file."""

    def __init__(self, folder: Path, number: int, settings: dict[str, str], place: Place) -> None:
        self.number, self.address, self.port = number, place.address, free_port()
        self.url = f"http://{self.address}:{self.port}"
        self.log = folder / f"host-{number}.log"
        self._command = [*place.command, "serve", "--host", self.address, "--port", str(self.port)]
        self._folder, self._settings = folder, settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with self.log.open("a") as log:
            self._process = subprocess.Popen[bytes](
                self._command, cwd=self._folder, env=environment(**self._settings), stdout=log, stderr=log
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it without a word, stopped or not."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(END_S)

    def drain(self) -> int:
        """Tell it to stop, and wait until it has; returns its exit status."""
        self.signal(signal.SIGTERM)
        assert self._process is not None
        return self._process.wait(END_S)

    def ready(self) -> bool:
        """Whether it says that it is ready; it may be away."""
        try:
            return urllib.request.urlopen(f"{self.url}/readyz", timeout=5).status == 200  # type: ignore[no-any-return]
        except (OSError, urllib.error.HTTPError):
            return False

    def wait_until_ready(self) -> None:
        wait_until(lambda: self.ready() or self._ended(), START_S)

    def _ended(self) -> bool:
        assert self.runs, f"host {self.number} ended: {self.said()[-3_000:]}"
        return False

    def said(self) -> str:
        """All that it has printed."""
        return self.log.read_text()

    def ask(self, route: str, body: object = None, method: str | None = None) -> Any:
        return ask(self.url, route, body, method)


@contextmanager
def cluster(
    folder: Path, store: str, origin: str, places: Sequence[Place], **settings: str
) -> Iterator[list[HostProcess]]:
    """A host at each of these places, ready; killed at the end."""
    with ExitStack() as stack:
        given = {
            "TOCSIN_STORE": store,
            "TOCSIN_ORIGIN_URL": origin,
            "TOCSIN_SECRETS": SECRET,
            "TOCSIN_TOKENS": f"test:admin:{TOKEN}",
            **settings,
        }
        hosts = [HostProcess(folder, number, given, place) for number, place in enumerate(places)]
        for host in hosts:
            stack.callback(host.kill)
            host.start()
        for host in hosts:
            host.wait_until_ready()
        yield hosts


def idle(hosts: Sequence[HostProcess], actors: Sequence[str]) -> bool:
    """Whether nothing waits in any of these schedulers, as the first host that answers sees it."""
    host = next(one for one in hosts if one.ready())
    statuses = (host.ask(f"/i/{actor}/status") for actor in actors)
    return all(status["backlog"] == status["inFlight"] == 0 for status in statuses)
