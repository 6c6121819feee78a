"""On what, with what, when and of which commit figures were measured."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("tocsin", "aiosqlite", "msgspec", "uvloop", "uvicorn", "starlette")
SYNCS = 40


def facts(folder: str | None, loop: str) -> dict[str, str]:
    """Everything that a reader needs to judge a figure, in words, by name."""
    found = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit(),
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores"
        if hasattr(os, "sched_getaffinity")
        else "",
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load at the start": load(),
        "fdatasync of a page": f"{sync_us(folder):,.0f} µs (median)",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "event loop": loop,
        "SQLite": f"{sqlite3.sqlite_version}, WAL, synchronous=FULL",
    }
    return {name: words for name, words in found.items() if words} | {name: _version(name) for name in PACKAGES}


def load() -> str:
    """How many processes want the CPU, over the last minute; nothing where the system does not say."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else ""


def commit() -> str:
    """The commit of the working tree, and whether files differ from it."""
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except OSError:
        return "unknown: no git"
    return said.stdout.strip() or "unknown: no repository"


def sync_us(folder: str | None) -> float:
    """Microseconds until a page is on the disk: the median of some."""
    taken = []
    with tempfile.TemporaryFile(dir=folder) as file:
        sync = getattr(os, "fdatasync", os.fsync)
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            sync(file.fileno())
            taken.append(time.perf_counter() - began)
    return sorted(taken)[SYNCS // 2] * 1e6


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return ""
    return f"{total / 2**30:.0f} GiB"
