"""`AllowedUrls`: the URLs that jobs of a host may name, and how they are called back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tocsin.dispatch.transport import Transport
from tocsin.dispatch.url_list import UrlList


@dataclass(frozen=True, slots=True, repr=False)
class AllowedUrls:
    """The list of URLs that jobs may name by the option `url`: `allow_urls=AllowedUrls(["https://*.customer.example/"])`.
    A plain list says the same, with nothing else.

    An entry is `https://host[:port][/path]`; `*.` in front of a host stands for one label, and a path for all below it.
    Whatever a name leads to, only public addresses are called, and those in `networks` (`10.1.0.0/16`). `secrets` sign
    these callbacks, the host's own where none are given; a callable is asked as for those. `max_in_flight` (1 to
    10,000) is how many may be in flight, whatever goes to origins; left out, as many as to the host's own. `transport`
    is the name of one, or your own, which must check addresses itself; left out, the host's if that is a name.
    """

    entries: Sequence[str] | UrlList
    networks: Sequence[str] = ()
    secrets: Sequence[str | bytes] | Callable[[], Sequence[str | bytes]] = ()
    max_in_flight: int | None = None
    transport: Transport | str | None = None

    def __repr__(self) -> str:
        entries = self.entries.entries if isinstance(self.entries, UrlList) else self.entries
        return f"AllowedUrls({list(entries)!r}, networks={list(self.networks)!r}, secrets=...)"
