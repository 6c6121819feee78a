"""`tocsin` as a real process: started, waited for by what it prints, stopped by signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Final

DEADLINE_S: Final = 30.0
COMMAND: Final = (sys.executable, "-c", "from tocsin.cli import main; main()")


def environment(**more: str) -> dict[str, str]:
    """The tester's, without any TOCSIN_ setting."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    return {**kept, "COLUMNS": "80", "PYTHONUNBUFFERED": "1", **more}


def tocsin(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *words], cwd=cwd, env=environment(**env), capture_output=True, text=True, timeout=DEADLINE_S
    )


class Server:
    """A running `tocsin serve`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._queue: Queue[str | None] = Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def line_with(self, words: str) -> str:
        """The next line on stderr that holds `words`; fails at the deadline or the process's end."""
        while True:
            try:
                line = self._queue.get(timeout=DEADLINE_S)
            except Empty:
                raise AssertionError(f"nothing with {words!r} within {DEADLINE_S} s, but {self.lines}") from None
            if line is None:
                raise AssertionError(f"ended without {words!r}: {self.lines}")
            self.lines.append(line)
            if words in line:
                return line

    def url(self) -> str:
        """Waits until it serves."""
        return self.line_with("serving http").split("serving ")[1].split(",")[0]

    def rest(self) -> list[str]:
        """What it printed since, when it has ended."""
        self._reading.join()
        return list(iter(self._queue.get, None))

    def end(self) -> None:
        """Killed, if it still runs, and its pipe closed."""
        self.process.kill()
        self.process.wait()
        self._reading.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@contextmanager
def tocsin_serve(*words: str, cwd: Path, **env: str) -> Iterator[Server]:
    """`tocsin serve --port 0 ...`; killed at the end if it still runs."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", *words],
        cwd=cwd,
        env=environment(**env),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Server(process)
    try:
        yield server
    finally:
        server.end()
