"""The standard streams of a command: always there, able to take any text, and silent once nobody reads them."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Final

from tocsin.cli.failure import NobodyReads, Unwritable
from tocsin.cli.words import mute

STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""The standard streams by descriptor: 0, 1, 2."""


def prepare() -> None:
    """Fill the places of streams that were closed when the process started, before a store or a socket takes them,
    and escape what the encoding of a stream does not have. Call it before anything is opened."""
    for number, (name, mode) in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor: this one, as those below are taken
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Wrap writes to stdout. A reader that has closed the pipe (`| head -1`) ends the command by NobodyReads
    with 0. Raises Unwritable for any other failure."""
    try:
        yield
    except BrokenPipeError:
        mute(sys.stdout)
        raise NobodyReads from None
    except OSError as error:
        mute(sys.stdout)
        raise Unwritable(f"what was found cannot be written to stdout: {error.strerror}") from None
