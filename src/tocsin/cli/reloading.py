"""Secrets and tokens of a running server, read again at SIGHUP and when a file that holds them has changed.

They are swapped at once or not at all; one line on stderr says which, with counts only.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Final

from tocsin.actors.runtime.clock import Clock
from tocsin.cli.signals import at_signals
from tocsin.cli.words import say
from tocsin.errors import SettingsError
from tocsin.settings import HIDDEN, NAMES, Settings, renewed, stamp

LOOK_EVERY_S: Final = 1.0
"""How often the files are looked at. A change counts once it has stayed for two looks: whoever writes a file in
several steps must not have half of it believed."""


class Reload:
    """Holds the settings in force. `read` reads them anew and may raise SettingsError."""

    def __init__(self, settings: Settings, read: Callable[[], Settings]) -> None:
        self.settings = settings
        self._read = read
        self._stamps = dict(settings.files)
        self._seen = self._stamps
        self._wrong = ""

    def secrets(self) -> tuple[str, ...]:
        return self.settings.secrets

    def url_secrets(self) -> tuple[str, ...]:
        return self.settings.url_secrets

    def secrets_to(self, origin: str) -> tuple[str, ...]:
        return self.settings.secrets_to(origin)

    def tokens(self) -> tuple[str, ...]:
        return self.settings.tokens

    async def watch(self, clock: Clock) -> None:
        """Poll the files until cancelled."""
        while True:
            await clock.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """Read again if a file has changed since it was read, or what was read was wrong."""
        now = {path: stamp(path) for path in self._stamps}
        settled, self._seen = now == self._seen, now
        if settled and (now != self._stamps or self._wrong):
            self._stamps = now  # one that is gone is told of once
            self._again(asked=False)

    def ask(self) -> None:
        """Read again now."""
        self._again(asked=True)

    def _again(self, *, asked: bool) -> None:
        try:
            if pipe := next((path for path in self._stamps if path.exists() and not path.is_file()), None):
                raise SettingsError(f"{pipe} is no file that could be read again")
            read = self._read()
            settings = renewed(self.settings, read)
        except (SettingsError, OSError) as error:
            told, self._wrong = self._wrong, str(error)
            if asked or told != self._wrong:
                _tell(f"read again, and wrong, so {_counts(self.settings)} of before stay in force: {error}")
            return
        same = all(getattr(settings, name) == getattr(self.settings, name) for name in HIDDEN)
        waiting = [name for name in NAMES if name not in HIDDEN and getattr(read, name) != getattr(settings, name)]
        mended, self._wrong = self._wrong, ""
        self.settings, self._stamps = settings, dict(settings.files)
        if asked or mended or not same or waiting:
            later = f"; {', '.join(waiting)} changed too: that needs a restart" if waiting else ""
            _tell(f"read again: {_counts(settings)}{', as before' if same else ' from now on'}{later}")

    @contextlib.asynccontextmanager
    async def at_hangup(self, *, otherwise: Callable[[], None]) -> AsyncIterator[None]:
        """Read again at SIGHUP. Call `otherwise` when it means that the terminal of this process was closed."""
        if not hasattr(signal, "SIGHUP"):  # Windows
            yield
            return
        had_terminal = _has_terminal()

        def hung_up() -> None:
            if had_terminal and not _has_terminal():
                otherwise()
            else:
                self.ask()

        async with at_signals(hung_up, signal.SIGHUP):
            yield


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal: a server in a closed window shall end with it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _counts(settings: Settings) -> str:
    secrets, tokens = len(settings.secrets) + len(settings.origin_secrets), len(settings.tokens)
    return f"{secrets} secret{'' if secrets == 1 else 's'} and {tokens} token{'' if tokens == 1 else 's'}"


def _tell(words: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be left to read it; what was read counts all the same
        say(f"tocsin: {words}")
