"""An app as a user writes it: built by a function, from settings, with its own host, receiver and worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from tocsin import ActorHost, Received, Receiver, Worker

SECRET = "whsec_" + "c2VjcmV0IG9mIGF0IGxlYXN0IDI0IGJ5dGVz"


class Shop:
    """What one test sees of its app."""

    def __init__(self, store: str = "sqlite:///must-not-be-made.db") -> None:
        self.store = store
        self.did: list[tuple[str, Any]] = []
        self.starts = 0
        self.hosts: list[ActorHost] = []
        self.handlers: dict[str, Callable[..., Any]] = {"carts:remind": self.remind, "digests:send": self.send}
        self.pulled: dict[str, Callable[..., Any]] = {"images:shrink": self.shrink}

    async def remind(self, args: dict[str, Any], job: Received) -> None:
        self.did.append(("remind", args["user"]))

    async def send(self, args: dict[str, Any], job: Received) -> None:
        self.did.append(("digest", job.scheduled_for))

    async def shrink(self, args: dict[str, Any]) -> None:
        self.did.append(("shrink", args["image"]))

    def app(self) -> FastAPI:
        """Make the app; what a server would call."""
        host = ActorHost.open(self.store, origin="https://shop.example", secrets=[SECRET])
        self.hosts.append(host)
        receiver = Receiver([SECRET])
        receiver.register(self.handlers)

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
            worker = Worker(host.scheduler(), self.pulled)
            async with host.lifespan(app) as state, receiver, worker:
                self.starts += 1
                yield state

        app = FastAPI(lifespan=lifespan)
        app.mount("/_tocsin", receiver)

        @app.post("/carts/{user}")
        async def cart(user: str) -> dict[str, str]:
            return {"id": await host.scheduler().run_after("2d", "carts:remind", {"user": user})}

        return app
