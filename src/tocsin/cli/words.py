"""Print messages on stderr, without control characters.

Failures are shown by it, so it imports no other module of the command line."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import IO, Final, TextIO


def say(words: str, *, failed: bool = False) -> None:
    """Print a message on stderr, wrapped on a terminal. Messages that nobody reads are
    lost, which fails no command. Where stderr is a log for programs, the message is a line of it, and an error there if
    the command has `failed`."""
    try:
        if _log_lines:
            write(sys.stderr, _log_lines[-1](words, failed))
            return
        text = lines_of(f"Error: {words}" if failed else words)
        write(sys.stderr, folded(text) if sys.stderr.isatty() else text)
    except OSError:
        mute(sys.stderr)


def say_as(line_of: Callable[[str, bool], str]) -> None:
    """Write messages from here on as this makes lines of them, and of whether they say that the command failed."""
    _log_lines[:] = [line_of]


_log_lines: Final[list[Callable[[str, bool], str]]] = []


def write(stream: TextIO, text: str) -> None:
    """Write and flush, in the stream's encoding: click would write UTF-8 to an ASCII stream."""
    stream.write(text + "\n")
    stream.flush()


def lines_of(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


def folded(words: str) -> str:
    """Fold words at spaces, to the width of the terminal."""
    import shutil

    from rich.console import Console
    from rich.text import Text

    columns = shutil.get_terminal_size().columns
    lines = Text(words).wrap(Console(width=columns), columns, overflow="fold")
    return "\n".join(line.plain.rstrip() for line in lines)


def printable(value: object) -> str:
    """Return a text with control characters and escape sequences spelt out."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def mute(stream: IO[str]) -> None:
    """Discard what is written from now on, and what the stream still holds: the interpreter flushes it at its end, and
    would make an error of it."""
    with contextlib.suppress(OSError, ValueError):  # a stream of a test has no descriptor
        number = stream.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)
