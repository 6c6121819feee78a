"""The origins of one host: its own, and those with names. Each has its dispatcher, its circuit and its permits, so that
one which is slow or away delays nothing that goes to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tocsin.actors.scheduler.inflight.circuit import Broken, Circuit
from tocsin.actors.scheduler.inflight.permits import Company, Permits
from tocsin.dispatch.dispatcher import Dispatcher
from tocsin.dispatch.origin import RESERVED, URL
from tocsin.dispatch.tracing import Tracing
from tocsin.dispatch.url_dispatcher import UrlDispatcher
from tocsin.dispatch.url_list import NO_URLS, UrlList


class NamedOrigin(NamedTuple):
    """A sender to a named origin, and how much of it may be in flight; None: as much as to the host's own."""

    dispatcher: Dispatcher
    max_in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """One origin of a host; `name` is "" for its own."""

    name: str
    dispatcher: Dispatcher
    permits: Permits

    @property
    def circuit(self) -> Circuit:
        return self.permits.circuit

    @property
    def shown(self) -> str:
        """Return what to call it in messages: the URL, and the name if it has one."""
        url = self.dispatcher.last_origin or "(none)"
        return f"{self.name} ({url})" if self.name else url


class Origins:
    """The origins of one host, by name; "" is its own. `changed` hears when the circuit of one opens or closes."""

    def __init__(
        self,
        own: Dispatcher,
        named: Mapping[str, NamedOrigin],
        limit: int,
        tracing: Tracing,
        monotonic: Callable[[], float],
        now_ms: Callable[[], int],
        changed: Callable[[str, Broken, bool], None],
    ) -> None:
        self.company = Company(monotonic)
        self.gates: dict[str, Gate] = {}
        every = {"": NamedOrigin(own), **named}
        shared = Counter(id(one.dispatcher.transport) for one in every.values())
        for name, one in sorted(every.items()):
            one.dispatcher.tracing = tracing
            circuit = Circuit(monotonic, now_ms, partial(changed, name))
            permits = Permits(one.max_in_flight or limit, circuit, monotonic, self.company)
            if shared[id(one.dispatcher.transport)] == 1:  # else nobody knows whose connection it is
                one.dispatcher.tell_connections(circuit.connected)
            permits.cools = name != URL
            if name:
                self.company.add(name, permits)
            self.gates[name] = Gate(name, one.dispatcher, permits)
        self.names = frozenset(named) - RESERVED
        """Those that jobs may name."""
        self.own = self.gates[""].permits
        """The permits of the host's own origin."""

    @property
    def urls(self) -> UrlList:
        """Return the list of URLs that jobs may name."""
        dispatcher = self.gates[URL].dispatcher if URL in self.gates else None
        return dispatcher.urls if isinstance(dispatcher, UrlDispatcher) else NO_URLS

    def permits_of(self, name: str) -> Permits:
        """Return the permits of an origin; there are none for one that this host has not."""
        return self.company.of(name) if name else self.own

    def open(self) -> None:
        """Let the transports connect, also again after `aclose`."""
        for gate in self.gates.values():
            gate.dispatcher.open()

    async def aclose(self) -> None:
        for gate in self.gates.values():
            await gate.dispatcher.aclose()
