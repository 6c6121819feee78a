"""The process at the other end of a Unix socket: who it is, whether it was stopped, and how it is ended."""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from tocsin.storage.aside import aside

log = logging.getLogger("tocsin.sharing")

_CREDENTIALS: Final = struct.Struct("3i")
_LOOK_S: Final = 1.0
HAS_PROC: Final = Path("/proc/self/stat").exists()
_LOCKS: Final = Path("/proc/locks")
STOPPED: Final = "T"
"""The state of a process that a signal stopped (SIGSTOP, SIGTSTP). One that a debugger holds has a small t."""


def credentials(connected: socket.socket) -> tuple[int, int] | None:
    """Return process and user at the other end; None where the system does not tell. A process of another namespace
    has the number 0."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    pid, uid, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def is_same_user(connected: socket.socket) -> bool:
    """Return whether the other end is of this process's user, or root, as far as the system tells."""
    found = credentials(connected)
    return found is None or found[1] in (os.geteuid(), 0)


class UnixNeighbour:
    """The process that listens at the other end of a connected socket. Made before anything was heard of it: if it
    answers afterwards, it is the one that is held here, and not one that has its number since."""

    def __init__(self, connected: socket.socket, noted: int) -> None:
        """`noted` is the process that the lock file names, for systems that do not tell."""
        found = credentials(connected)
        self._hold(noted if found is None else found[0])

    @classmethod
    def that_has(cls, lock: Path, noted: int) -> UnixNeighbour | None:
        """Return the process that has this lock, which names it; None if the system does not say that it has it."""
        found = cls.__new__(cls)
        found._hold(noted)
        if _has_lock(noted, lock):  # asked when it is held: who has the lock now is who had this number then
            return found
        found.forget()
        return None

    def _hold(self, pid: int) -> None:
        self.pid = pid
        self._handle: int | None = None
        if self.pid > 0 and hasattr(os, "pidfd_open"):
            with suppress(OSError):  # an older system, or it has just ended
                self._handle = os.pidfd_open(self.pid)

    def name(self) -> str:
        return f"process {self.pid}" if self.pid > 0 else "a process of another namespace"

    async def is_stopped(self) -> bool | None:
        state = _state_by_proc(self.pid) if HAS_PROC else await aside(_state_by_ps, self.pid)
        return None if state is None else state.startswith(STOPPED)

    def kill(self) -> None:
        if self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        elif self.pid > 0 and not hasattr(os, "pidfd_open"):
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def forget(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _has_lock(pid: int, path: Path) -> bool:
    """Return whether Linux's /proc says that this process has the lock of a file; False where it says nothing."""
    try:
        inode, lines = path.stat().st_ino, _LOCKS.read_text("ascii", "replace").splitlines()
    except OSError:
        return False
    taken = (line.split() for line in lines if "->" not in line)  # an arrow is one that waits
    return any(
        words[1] == "FLOCK" and words[4] == str(pid) and words[5].rpartition(":")[2] == str(inode)
        for words in taken
        if len(words) > 5
    )


def _state_by_proc(pid: int) -> str | None:
    """Return the state of a process by Linux's /proc; None if it cannot be seen."""
    if pid <= 0:
        return None
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()[0]  # its name, in brackets, may hold anything


def _state_by_ps(pid: int) -> str | None:
    """Return the state of a process by `ps`; None if it cannot be seen."""
    if pid <= 0:
        return None
    try:
        found = subprocess.run(
            ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, timeout=_LOOK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
