"""`build_app`: the routes of a host. Every one exists at the root, for the instance `default`, and for each
instance under `/i/{instance}`; but `/instances` and `/openapi.json`, which are about all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Match, Route
from starlette.types import HTTPExceptionHandler, Receive, Scope, Send

from tocsin.actors.http.access import Authorize, Gate
from tocsin.actors.http.crowd import Crowd
from tocsin.actors.http.dashboard.endpoint import Dashboard
from tocsin.actors.http.endpoint import Endpoint, OperationEndpoint
from tocsin.actors.http.errors import refuse_unrouted
from tocsin.actors.http.feed.fanout import Fanouts
from tocsin.actors.http.feed.passes import PassDesk, WsTokenEndpoint
from tocsin.actors.http.feed.socket import NoSocket, SocketEndpoint
from tocsin.actors.http.feed.stream import ChangesEndpoint
from tocsin.actors.http.instances import Instances
from tocsin.actors.http.methods import counted
from tocsin.actors.http.metrics.endpoint import MetricsEndpoint
from tocsin.actors.http.metrics.traffic import Traffic
from tocsin.actors.http.openapi import PLACES, OpenApi
from tocsin.actors.http.operations import OPERATIONS, Operation
from tocsin.actors.http.probes import Health, Readiness
from tocsin.actors.http.responses import Reply
from tocsin.actors.http.served import ServedHost
from tocsin.actors.http.sessions import Sessions
from tocsin.actors.http.tokens import SHAPE, Tokens, parse_tokens
from tocsin.actors.http.transfers import Export, Import, Seal
from tocsin.dispatch.current import Current
from tocsin.errors import SettingsError

SOCKET: Final = "/ws"
UNDER: Final = "/i/"
"""Before the name of an instance."""


class FixedPaths(BaseRoute):
    """Finds a path at the root and under `/i/{instance}` by one look, or two where its second part is a name, as in
    `/queues/{queue}/claim`; patterns would be tried one after another."""

    def __init__(self, endpoints: Mapping[str, Endpoint], socket: SocketEndpoint) -> None:
        self._socket = socket
        self._endpoints = {path: endpoint for path, endpoint in endpoints.items() if "{" not in path}
        self._named: dict[tuple[str, str], tuple[str, Endpoint]] = {}
        for path in endpoints.keys() - self._endpoints.keys():
            before, name, after = _around_name(path)
            self._named[before, after] = name.strip("{}"), endpoints[path]
        # The root itself removes nothing: an instance is removed by its name.
        self.paths = [place + path for place in PLACES for path in endpoints if place + path]

    def matches(self, scope: Scope) -> tuple[Match, dict[str, Any]]:
        if scope["type"] not in ("http", "websocket"):
            return Match.NONE, {}
        path, root = scope["path"], scope.get("root_path", "")
        if root and (path == root or path.startswith(root + "/")):
            path = path[len(root) :]
        parameters = dict(scope.get("path_params", {}))
        if path.startswith(UNDER):
            instance, slash, rest = path[len(UNDER) :].partition("/")
            path, parameters["instance"] = slash + rest, instance
            if not instance:
                return Match.NONE, {}
        elif not path:
            return Match.NONE, {}
        if scope["type"] == "websocket":
            return (Match.FULL if path == SOCKET else Match.NONE), {"endpoint": self._socket, "path_params": parameters}
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            before, name, after = _around_name(path)
            if not name or (before, after) not in self._named:
                return Match.NONE, {}
            parameter, endpoint = self._named[before, after]
            parameters[parameter] = name
        return Match.FULL, {"endpoint": endpoint, "path_params": parameters}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["endpoint"](scope, receive, send)


def _is_deep(path: str) -> bool:
    """Return whether the name in a path is not its second part, or there are several."""
    _, name, after = _around_name(path)
    return "{" in path and not (name.startswith("{") and "{" not in after)


def _around_name(path: str) -> tuple[str, str, str]:
    """Return the second part of a path between what stands before and behind it."""
    before, _, rest = path[1:].partition("/")
    name, slash, after = rest.partition("/")
    return before, name, slash + after


class App(Starlette):
    """The type that `build_app` returns; rooms that know no HTTP framework name it by this."""

    def __init__(self, fixed: FixedPaths, others: Sequence[BaseRoute], unrouted: dict[tuple[str, int], int]) -> None:
        # A `Reply` is the ASGI app that Starlette wants of a handler, and nothing else of a `Response`.
        async def refuse_counted(request: Request, error: Exception) -> Reply:
            reply = await refuse_unrouted(request, error)
            ended = counted(request.method), reply.status
            unrouted[ended] = unrouted.get(ended, 0) + 1
            return reply

        refuse = cast(HTTPExceptionHandler, refuse_counted)
        super().__init__(routes=[fixed, *others], exception_handlers={HTTPException: refuse, Exception: refuse})
        self._fixed = fixed
        self.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go straight to the endpoint of a fixed path, which answers every failure itself. Where somebody has added
        middleware, and for all other paths, go Starlette's way."""
        match, found = self._fixed.matches(scope)
        if match is Match.NONE or self.user_middleware:
            return await super().__call__(scope, receive, send)
        scope["app"] = self
        scope.update(found)
        return await self._fixed.handle(scope, receive, send)


def build_app(
    host: ServedHost,
    *,
    tokens: Tokens | Callable[[], Tokens] | None = None,
    authorize: Authorize | None = None,
    insecure: bool = False,
) -> App:
    """Build an ASGI app over an open host; it neither opens nor closes the host.

    `tokens` are texts like `ops:read+operate@tenant-*:secret`, or a callable that gives them, asked at each request
    (see `Current`). `authorize(identity, action, instance, resource)`
    is the embedding app's own rule, asked for every request; with tokens too, both must agree. With neither,
    `insecure=True` must be said, and only requests to loopback are answered. SettingsError if none is given, or a
    token is wrong.
    """
    known = Current("tokens", tokens, lambda given: parse_tokens(given or ()))
    if not known() and authorize is None and not insecure:
        raise SettingsError(
            f"anyone could use this app: give tokens=[...] (TOCSIN_TOKENS; {SHAPE}) or authorize=..., or say "
            "insecure=True to answer requests to loopback only"
        )
    sessions = Sessions(lambda: host.runtime.clock.now_ms(), host.runtime.random)
    gate = Gate(known if known.may_change else known(), authorize, sessions)
    clock = host.runtime.clock
    crowd = Crowd(clock.monotonic, now_ms=clock.now_ms)
    endpoints: list[tuple[str, Endpoint]] = [("/healthz", Health(gate)), ("/readyz", Readiness(gate, host, crowd))]
    endpoints += [("/export", Export(gate, host)), ("/import", Import(gate, host)), ("/seal", Seal(gate, host))]
    by_path: dict[str, list[Operation]] = {}
    for one in OPERATIONS:
        by_path.setdefault(one.path, []).append(one)
    endpoints += [(path, OperationEndpoint(ones, gate, host.ports, crowd)) for path, ones in by_path.items()]
    dashboard = Dashboard(gate, host, crowd)
    fanouts, desk = Fanouts(host.ports), PassDesk(lambda: host.passes, host.runtime.random)
    endpoints += [("/ws-token", WsTokenEndpoint(gate, host.ports, desk)), ("/ws", NoSocket(gate))]
    changes = ChangesEndpoint(by_path["/changes"], gate, host.ports, crowd, fanouts)
    endpoints.append(("/changes", changes))
    instances, openapi = Instances(gate, host), OpenApi(gate, tokens=bool(known()))
    traffic = Traffic()
    metrics = MetricsEndpoint(gate, host, traffic)
    once: list[tuple[str, Endpoint]] = [("/instances", instances), ("/openapi.json", openapi), ("/metrics", metrics)]
    for path, endpoint in (*endpoints, *once, ("/ui", dashboard)):
        traffic.follow(path, endpoint.answered)
    app = App(
        FixedPaths(
            {path: endpoint for path, endpoint in endpoints if not _is_deep(path)},
            SocketEndpoint(gate, host.ports, desk, fanouts),
        ),
        [
            *(Route(path, one, methods=None) for path, one in once),
            *(Route(place + path, dashboard, methods=None) for place in PLACES for path in ("/ui", "/ui/{rest:path}")),
            *(Route(place + path, one, methods=None) for place in PLACES for path, one in endpoints if _is_deep(path)),
        ],
        traffic.unrouted,
    )
    app.state.crowd, app.state.traffic = crowd, traffic  # for the server, which counts connections
    app.state.changes = changes  # for one that lets nobody wait any more when it stops
    return app
