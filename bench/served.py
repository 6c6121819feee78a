"""`tocsin serve` in a process of its own, and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOKEN = "a-token-of-the-benchmark"
START_S = 120.0
COMMAND = (sys.executable, "-c", "from tocsin.cli import main; main()")


@dataclass(frozen=True)
class Served:
    """A server on the loopback, and its process."""

    url: str
    pid: int

    def cpu_s(self) -> float | None:
        """CPU seconds it has used; None where there is no /proc."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float | None:
        """Resident memory; None where there is no /proc."""
        return resident_mb(self.pid)


def resident_mb(pid: int) -> float | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """A server on a fresh store in this folder, ended afterwards."""
    settings = {
        "TOCSIN_STORE": f"sqlite:///{folder}/served.db",
        "TOCSIN_TOKENS": f"bench:admin:{TOKEN}",
        "TOCSIN_SECRETS": "whsec_" + "a2V5" * 8,
        "TOCSIN_ORIGIN_URL": "http://127.0.0.1:9",
        "TOCSIN_MAX_IN_FLIGHT": "16",  # nobody is called back: descriptors are for connections
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    said = folder / "served.log"
    with said.open("w") as log:
        command = [*COMMAND, "serve", "--port", "0"]
        process = subprocess.Popen(command, env={**kept, **settings}, cwd=folder, stdout=log, stderr=log)
    try:
        yield Served(_url(process, said), process.pid)
    finally:
        process.terminate()
        process.wait()


def _url(process: subprocess.Popen[bytes], said: Path) -> str:
    """Polled: it is another process."""
    deadline = time.monotonic() + START_S
    while "serving http" not in (text := said.read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"tocsin serve did not start: {text}")
        time.sleep(0.02)
    return text.partition("serving http")[2].split(",")[0].join(("http", ""))
