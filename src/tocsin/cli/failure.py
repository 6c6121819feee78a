"""Failures of a command: a message on stderr and one of the documented exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from tocsin.cli.words import say


class Failure(click.ClickException):
    """Ends the command with a message and its exit code."""

    def show(self, file: IO[Any] | None = None) -> None:
        say(self.format_message(), failed=True)


class Refused(Failure):
    """The server refused, or the thing does not exist."""

    exit_code = 1


class NotNow(Refused):
    """The server cannot answer now: it starts, stops, or has no store."""


class No(Refused):
    """A negative answer to a question; printed without `Error:`."""

    def show(self, file: IO[Any] | None = None) -> None:
        say(self.format_message())


class WrongSettings(Failure):
    """Wrong settings; click's own code for wrong usage."""

    exit_code = 2


@contextmanager
def settings_checked(before: str = "", behind: str = "") -> Iterator[None]:
    """Let a SettingsError of the block be wrong settings, its message between these words."""
    from tocsin.errors import SettingsError

    try:
        yield
    except SettingsError as error:
        raise WrongSettings(f"{before}{error.message}{behind}") from None


class Unreachable(Failure):
    """No server answered, or the answer is not tocsin's."""

    exit_code = 3


class StoreUnusable(Failure):
    """The store cannot be opened."""

    exit_code = 4


def store_unusable(store: str, error: Exception) -> StoreUnusable:
    """Return the failure of a store, which is named once: many errors name it already."""
    where = "" if f"{store.partition('://')[0]}://" in str(error) else f" {store}"
    return StoreUnusable(f"the store{where} cannot be used: {error}")


class Unbound(Failure):
    """The address cannot be bound."""

    exit_code = 5


class Unwritable(Failure):
    """The output cannot be written to stdout."""

    exit_code = 6


class Held(Failure):
    """Another process has the store, so nothing was done."""

    exit_code = 7


class Left(Failure):
    """Due work was left that should have been done."""

    exit_code = 8


class NobodyReads(click.exceptions.Exit):
    """The reader of stdout has closed it, as `head` does."""

    def __init__(self) -> None:
        super().__init__(0)


class Interrupted(Failure):
    """Stopped by a signal before it was done."""

    exit_code = 130
