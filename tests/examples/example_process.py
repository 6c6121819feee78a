"""An example in a process of its own, called back by `tocsin serve` in another."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any, Final

import httpx

from tests.cli.processes import environment

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
DEADLINE_S: Final = 30.0


class Program:
    """What it prints, line by line, on stdout and stderr together."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._queue: Queue[str | None] = Queue()
        assert process.stdout is not None
        self._reading = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reading.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def line_with(self, words: str) -> str:
        """The next line that holds `words`; fails at the deadline or the program's end."""
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

    def lines_so_far(self) -> list[str]:
        while not self._queue.empty():
            if (line := self._queue.get()) is not None:
                self.lines.append(line)
        return self.lines

    def stop(self) -> list[str]:
        """Told to end; all it ever printed."""
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        self._reading.join(DEADLINE_S)
        while (line := self._queue.get(timeout=DEADLINE_S)) is not None:
            self.lines.append(line)
        return self.lines


@contextmanager
def running(command: Sequence[str], *, cwd: Path, pass_fds: Sequence[int] = (), **env: str) -> Iterator[Program]:
    """Killed at the end with the processes that it began, if they still run."""
    process = subprocess.Popen(
        command, cwd=cwd, env=environment(**env), pass_fds=pass_fds, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    program = Program(process)
    try:
        yield program
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        program._reading.join()


def attempts(server: str, job_id: str) -> list[dict[str, Any]]:
    """How they ended, asked of the server."""
    answer = httpx.get(f"{server}/history", params={"id": job_id}, trust_env=False).raise_for_status()
    found: list[dict[str, Any]] = answer.json()["attempts"]
    return found
