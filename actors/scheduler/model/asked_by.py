"""Who asks for a change, as the audit log notes it."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.errors import InvalidInputError

USER_MAX: Final = 256


class AskedBy(msgspec.Struct, frozen=True, array_like=True):
    """Who asks: `via` is the way into this process, which no caller can choose (`python`, `http`, `dashboard`); `token`
    the name of the token that came with the request; `user` what the embedding app calls its user.

    `person`: whether everyday changes of single jobs are noted, too. An app makes those by the thousand.
    """

    via: str = "python"
    token: str = ""
    user: str = ""
    person: bool = False

    def __str__(self) -> str:
        named = [f"{name} {_in_a_line(value)}" for name, value in (("token", self.token), ("user", self.user)) if value]
        return ", ".join([f"asked for by {self.via}", *named])


def _in_a_line(name: str) -> str:
    """Return a name as a line of a log can have it. An app's users may choose theirs, line ends included."""
    return name if name.isprintable() else ascii(name)[1:-1]


PYTHON: Final = AskedBy()
"""Code with a handle, which did not say for whom."""


class Pause(msgspec.Struct, frozen=True, array_like=True):
    """Since when something is paused, and by whom, if that was said."""

    at: int
    by: AskedBy | None = None


def in_python(user: str) -> AskedBy:
    """Return who asks where code with a handle says for whom it does."""
    given: object = user
    if not isinstance(given, str) or not 1 <= len(given) <= USER_MAX or not given.isprintable():
        raise InvalidInputError(f"by must be a printable text of 1 to {USER_MAX} characters")
    return AskedBy("python", user=user, person=True)
