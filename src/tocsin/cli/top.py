"""`tocsin top`: a server as it is now, in the terminal, looked at again every second."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.output import console, emit, now_ms, put
from tocsin.cli.places import failing
from tocsin.cli.streams import writing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from tocsin.actors.client.client import Client
    from tocsin.cli.top_look import Look

TICK_S: Final = 0.1
"""So often the terminal's size and its keys are looked at."""
TIMEOUT_S: Final = 5.0
WITHOUT_TERMINAL: Final = 100
QUIT: Final = ("q", "Q", "\x03")
NEXT: Final = ("\t", "n", "j")


@click.command()
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=1.0, show_default=True, metavar="SECONDS",
    help="Between two looks.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Print one look and end.")
@client_command
def top(connection: Connection, /, every: float, once: bool) -> None:
    """Watch a server: health, rates, pools, queues, workers, deaths.

    Without --instance it shows the instance in most trouble, and lists all of
    them if the token has the scope admin. Keys: tab for the next instance, q
    to end. Off a terminal, and with --json, it prints one look.
    """
    import asyncio

    given = click.get_current_context().get_parameter_source("instance")
    name = None if given is click.core.ParameterSource.DEFAULT else connection.instance
    screen = console()
    live = screen.is_terminal and not (once or connection.as_json or screen.is_dumb_terminal)
    with failing():
        asyncio.run(_watch(connection, name, every, screen) if live else _once(connection, name, screen))


def _client(connection: Connection) -> Client:
    from tocsin.actors.client.client import Client

    return Client(
        connection.url, token=connection.token, ca_file=connection.ca_file, timeout_s=TIMEOUT_S, patience_s=0.0
    )


async def _once(connection: Connection, name: str | None, screen: Console) -> None:
    from tocsin.cli.top_look import look_at
    from tocsin.cli.top_page import page

    async with _client(connection) as client:
        look = await look_at(client, name, now_ms())
    if connection.as_json:
        emit(look.to_dict())
        return
    width = screen.width if screen.is_terminal else WITHOUT_TERMINAL
    for line in page(look, connection.url, width, None, keys=False):
        if screen.is_terminal:
            with writing():
                screen.print(line, end="\n")
        else:
            put(line.plain.rstrip())


async def _watch(connection: Connection, name: str | None, every: float, screen: Console) -> None:
    import asyncio

    from rich.live import Live

    async with _client(connection) as client:
        watched = Watched(client, connection.url, name)
        await watched.look()  # a server that is not there ends the command here
        with writing(), keys(watched.press), Live(console=screen, screen=True, auto_refresh=False) as live:
            looking = asyncio.ensure_future(watched.keep_looking(every))
            try:
                shown: object = None
                while not watched.ended:
                    size = screen.size
                    if (state := (watched.changes, size)) != shown:
                        shown = state
                        live.update(watched.drawn(size.width, size.height), refresh=True)
                    await asyncio.sleep(TICK_S)
            finally:
                looking.cancel()


class Watched:
    """The server that is watched: the last look, and what has become of the connection since."""

    def __init__(self, client: Client, url: str, name: str | None) -> None:
        import asyncio

        self._client, self._url, self._name = client, url, name
        self._last: Look
        self._lost = ""
        self._asked = asyncio.Event()
        self.changes = 0
        self.ended = False

    async def look(self) -> None:
        from tocsin.cli.top_look import look_at

        self._last = await look_at(self._client, self._name, now_ms())
        self._name = self._last.name  # the one that was in most trouble stays: a page that jumps cannot be read
        self._lost = ""
        self.changes += 1

    async def keep_looking(self, every: float) -> None:
        """Look again and again. While nobody answers, the last look stays, and why."""
        import asyncio

        from tocsin.errors import TocsinError

        while True:
            try:
                async with asyncio.timeout(every):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            try:
                await self.look()
            except TocsinError as error:
                seconds = (now_ms() - self._last.at) // 1000
                self._lost = f"as it was {seconds} s ago: {error.message}"
                self.changes += 1

    def press(self, key: str) -> None:
        """Do what a key says."""
        if key in QUIT:
            self.ended = True
        elif key in NEXT and len(self._last.instances) > 1:
            names = sorted(one.name for one in self._last.instances)
            shown = self._name
            self._name = names[(names.index(shown) + 1) % len(names)] if shown in names else names[0]
            self._asked.set()

    def drawn(self, width: int, height: int) -> Text:
        """Return the screen."""
        from rich.text import Text

        from tocsin.cli.top_page import page

        return Text("\n", end="", no_wrap=True, overflow="crop").join(
            page(self._last, self._url, width, height, lost=self._lost)
        )


@contextmanager
def keys(press: Callable[[str], None]) -> Iterator[None]:
    """Call `press` with each key, as long as the block lasts; without a terminal there are none."""
    if not sys.stdin.isatty():
        yield
        return
    import asyncio
    import termios
    import tty

    number, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(number)

    def read() -> None:
        for key in os.read(number, 64).decode("utf-8", "replace"):
            press(key)

    try:
        tty.setcbreak(number)
        loop.add_reader(number, read)
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
