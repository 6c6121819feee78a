"""Attempts of jobs that name a URL of their own: where they go is checked again before each of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from msgspec.structs import replace

from tocsin.dispatch.callback import AttemptOutcome, Callback, Verdict
from tocsin.dispatch.dispatcher import Dispatcher
from tocsin.dispatch.outcome import from_error
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.target import is_loopback
from tocsin.dispatch.tracing import Sending
from tocsin.dispatch.transport import Transport, TransportError
from tocsin.dispatch.url_list import UrlList, host_of
from tocsin.errors import SettingsError

NOT_LISTED: Final = "is not on the host's list of URLs (allow_urls, TOCSIN_ALLOW_URLS)"


class UrlDispatcher(Dispatcher):
    """Sends callbacks to the URLs of their jobs, if `urls` has them. `transport` is for these alone, and connects to
    permitted addresses only.

    Many receivers stand behind it, so that one which is not reached tells nothing of the others: there is no circuit,
    and an attempt that never connected is a failed one.
    """

    def __init__(
        self,
        transport: Transport,
        signer: Signer | Callable[[], Signer | None] | None,
        urls: UrlList,
        *,
        random: Random,
        version: str | None = None,
    ) -> None:
        super().__init__(transport, signer, None, random=random, version=version)
        self.urls = urls

    async def attempt(self, callback: Callback, *, now_ms: int, sending: Sending | None = None) -> AttemptOutcome:
        url = callback.url or ""
        if not self.urls.allows(url):
            return AttemptOutcome(Verdict.BLOCKED, f"not sent: {host_of(url)} {NOT_LISTED}")
        return await super().attempt(callback, now_ms=now_ms, sending=sending)

    def _unanswered(self, error: TransportError) -> AttemptOutcome:
        outcome = from_error(error)
        return replace(outcome, verdict=Verdict.FAILED) if outcome.verdict is Verdict.UNREACHABLE else outcome

    def _url(self, callback: Callback, *, signed: bool) -> str:
        url = callback.url or ""
        self._last = (host_of(url), url, is_loopback(url))
        if not signed and not self._last[2]:
            how = "give secrets= (a server: TOCSIN_SECRETS)"
            raise SettingsError(f"unsigned callbacks go to loopback only, not to {host_of(url)}: {how}")
        return url
