"""Handlers that break their worker process; each run is noted in one log, whoever ran it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import Any, Final

from tocsin import Context, Handlers

LOG: Final = "runs.log"
handlers = Handlers()


def note(what: str, context: Context) -> None:
    """One write a line, so lines of several processes stand in the order in which things happened."""
    entry = {
        "what": what, "at": time.time(), "path": context.function_path, "id": context.id, "attempt": context.attempt,
        "pid": os.getpid(), "until": context.job.lease_until / 1000,
    }  # fmt: skip
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, json.dumps(entry).encode() + b"\n")
    os.close(file)


@handlers.handler("plain")
def plain(args: Any, context: Context) -> None:
    note("begun", context)
    time.sleep(0.02)
    note("ended", context)


@handlers.handler("exits")
def exits(args: Any, context: Context) -> None:
    note("begun", context)
    os._exit(1)


@handlers.handler("freezes")
def freezes(args: Any, context: Context) -> None:
    """The first time, the whole process, until somebody sends SIGCONT."""
    note("begun", context)
    if context.attempt == 1:
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # to this thread, so it does not get any further
    note("ended", context)
