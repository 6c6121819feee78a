"""Clients that reach a scheduler over HTTP, such as a `LeaseClient`: in a lab they reach it in process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocsin.dispatch.asgi_transport import App
from tocsin.dispatch.server_client import ServerClient
from tocsin.dispatch.testing import InProcess


class Clients:
    """Leads clients of one lab to an app, whatever server they name, and gives them back."""

    def __init__(self, app: Callable[[], App]) -> None:
        """Lead to the app that `app()` returns at each request, on the loop that runs now."""
        self._transport = InProcess(lambda *request: app()(*request))
        self._led: list[ServerClient] = []

    def lead(self, client: ServerClient) -> None:
        """Lead a client, unless its owner gave it a transport."""
        if client._transport is None:
            client._transport, client._http = self._transport, None
            self._led.append(client)

    def give_back(self) -> None:
        """Let the clients reach the servers that they name again."""
        for client in self._led:
            client._transport = client._http = None
        self._led.clear()


def asking(method: Callable[..., Any], lead: Callable[[ServerClient], None]) -> Callable[..., Any]:
    """Return a method of a client, which is led before it asks."""

    async def ask(client: ServerClient, *args: Any, **kwargs: Any) -> Any:
        lead(client)
        return await method(client, *args, **kwargs)

    return ask
