"""Requests to a tocsin server, JSON both ways; its refusals come back as the errors they were."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from tocsin.dispatch.receiver.lease_client import DEFAULT_URL, base_url_of, json_object, sendable_token
from tocsin.dispatch.receiver.refusals import refusal
from tocsin.errors import UnreachableError

TIMEOUT_S: Final = 30.0


class ServerClient:
    """One server. Each call is made once; whoever makes it decides whether to make it again."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base, self._token = base_url_of(base_url), None if token is None else sendable_token(token)
        self._timeout_s, self._transport = timeout_s, transport
        self._http: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"

    async def get(self, instance: str, route: str, **parameters: str) -> dict[str, Any]:
        return await self._ask("GET", instance, route, params=parameters)

    async def post(self, instance: str, route: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        return await self._ask("POST", instance, route, content=body, headers=headers)

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _ask(self, method: str, instance: str, route: str, **request: Any) -> dict[str, Any]:
        """The answer. UnreachableError if nobody gave one, or somebody who is not a tocsin server."""
        try:
            answer = await self._client().request(
                method, f"{self.base}/i/{quote(instance, safe=':')}/{route}", **request
            )
        except (httpx.RequestError, OSError) as error:  # also what arrives and cannot be decoded
            raise UnreachableError(f"{self.base} did not answer: {type(error).__name__}: {error}") from None
        found = json_object(answer)
        if answer.is_success and found is not None:
            return found
        raise refusal(answer.status_code, found, self.base)

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            headers = {"content-type": "application/json", "accept": "application/json"}
            if self._token is not None:
                headers["authorization"] = f"Bearer {self._token}"
            # The system's certificates, as for callbacks; httpx would read its own bundle.
            verify = ssl.create_default_context() if self.base.startswith("https:") else False
            self._http = httpx.AsyncClient(
                headers=headers, timeout=self._timeout_s, trust_env=False, verify=verify, transport=self._transport
            )
        return self._http
