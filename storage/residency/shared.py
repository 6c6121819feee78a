"""Several named stores of which at least one is shared by several hosts: where actors are, and mail to them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Final

from tocsin.errors import OverloadedError, ResidencyError, StoreError, StoreUnavailable
from tocsin.storage.api import StoreProvider
from tocsin.storage.residency.provider import NamedStores
from tocsin.storage.residency.rules import Rules
from tocsin.storage.shared import (
    Arrived,
    HostFacts,
    Located,
    Mailbox,
    SharedCounts,
    SharedProvider,
    StoreFacts,
    shared_of,
)
from tocsin.storage.tasks import begin_soon

log = logging.getLogger("tocsin.storage")

CALLS_KEPT: Final = 10_000
"""So many calls of this host are remembered by the store that has them."""


class SharedNamedStores(NamedStores):
    """A `SharedProvider`. An actor of a store that only this host has is always here."""

    def __init__(self, parts: Mapping[str, StoreProvider], rules: Rules) -> None:
        super().__init__(parts, rules)
        self.shared = {name: shared for name, part in self.parts.items() if (shared := shared_of(part)) is not None}
        self.mailbox: Mailbox = Mailboxes(self)
        for part in self.shared.values():
            part.announce_rules(rules.mark)

    def shared_part(self, actor: str) -> SharedProvider | None:
        """Return the store of an actor if several hosts have it."""
        return self.shared.get(self.store_name(actor))

    def locate(self, name: str) -> Located:
        try:
            part = self.shared_part(name)
        except ResidencyError:
            return Located(here=True)  # whoever asks here is told why it is refused
        if part is None:
            return Located(here=True)
        return Located(here=False) if self.is_away(name) else part.locate(name)

    def is_host(self, host: str) -> bool:
        return any(part.is_host(host) for part in self.shared.values())

    @property
    def has_others(self) -> bool:
        return any(part.has_others for part in self.shared.values())

    @property
    def lease_good(self) -> bool:
        """Return whether anything can be begun. What is in a store without a good lease is not `here` by itself."""
        return len(self.shared) < len(self.parts) or any(part.lease_good for part in self.shared.values())

    async def relocated(self, name: str, since: Located, wait_s: float) -> Located:
        part = self.shared_part(name)
        return Located(here=True) if part is None else await part.relocated(name, since, wait_s)

    @property
    def secret(self) -> bytes:
        """Return the secret of the first shared store that was reached. Hosts that are peers have the same stores."""
        for part in self.shared.values():
            with suppress(StoreError):
                return part.secret
        raise StoreUnavailable("none of the shared stores is reached")

    @property
    def counts(self) -> SharedCounts:
        """Sum up what this process met in all of them."""
        total = SharedCounts()
        for part in self.shared.values():
            for one in fields(SharedCounts):
                setattr(total, one.name, getattr(total, one.name) + getattr(part.counts, one.name))
        return total

    @property
    def store_ms(self) -> int | None:
        """Return the time of the first shared store whose clock is known."""
        return next((ms for part in self.shared.values() if (ms := part.store_ms) is not None), None)

    @property
    def clocks_differ_ms(self) -> int:
        return max(part.clocks_differ_ms for part in self.shared.values())

    async def hand_over(self) -> None:
        await asyncio.gather(*(part.hand_over() for part in self.shared.values()))

    def announce(self, url: str | None, weight: int = 1) -> None:
        for part in self.shared.values():
            part.announce(url, weight)

    def announce_rules(self, rules: str) -> None:
        for part in self.shared.values():
            part.announce_rules(rules)

    async def facts(self) -> StoreFacts:
        """Sum up the shared stores that are reached. A host is told of once for each store, with another random id
        there; this one always by its `owner`."""
        each = await self.facts_of_each()
        if not each:
            raise StoreUnavailable("none of the shared stores is reached")
        hosts: list[HostFacts] = [
            replace(one, name=f"{one.name} in {name}", host=self.owner if one.host == said.host else one.host)
            for name, said in each.items()
            for one in said.hosts
        ]
        facts = list(each.values())
        return StoreFacts(
            self.owner,
            hosts,
            sum(one.unowned for one in facts),
            sum(one.mail for one in facts),
            max(one.oldest_mail_ms for one in facts),
            max(one.beat_ms for one in facts),
        )

    async def facts_of_each(self) -> dict[str, StoreFacts]:
        """Return the facts of every shared store that is reached, by its name."""
        found: dict[str, StoreFacts] = {}
        for name, part in self.shared.items():
            with suppress(StoreError):
                found[name] = await part.facts()
        return found

    async def drain_host(self, host: str) -> bool:
        mine = host == self.owner
        drained = [await part.drain_host(part.owner if mine else host) for part in self.shared.values()]
        return any(drained)

    async def release_slots(self, slots: Sequence[int]) -> Sequence[int]:
        """Take these slots of every shared store away from their owners."""
        released: set[int] = set()
        for part in self.shared.values():
            released.update(await part.release_slots(slots))
        return sorted(released)


class Mailboxes:
    """The mailboxes of the shared stores as one."""

    def __init__(self, stores: SharedNamedStores) -> None:
        self._stores = stores
        self._sent: OrderedDict[str, str] = OrderedDict()

    def _box(self, actor: str) -> Mailbox:
        part = self._stores.shared_part(actor)
        if part is None:
            raise StoreUnavailable(f"{actor} is in a store of this host alone, to which there is no mail")
        return part.mailbox

    async def send(self, actor: str, op: str, body: bytes) -> None:
        box = self._box(actor)
        self._sent[op] = self._stores.store_name(actor)
        while len(self._sent) > CALLS_KEPT:
            self._sent.popitem(last=False)
        await box.send(actor, op, body)

    async def bring(self, one: Arrived) -> None:
        await self._box(one.actor).bring(one)

    async def answer(self, op: str, wait_s: float) -> bytes | None:
        sent = self._sent.get(op)
        if sent is not None:
            return await self._stores.shared[sent].mailbox.answer(op, wait_s)
        asked = [begin_soon(_answer(part.mailbox, op, wait_s)) for part in self._stores.shared.values()]
        try:
            for done in asyncio.as_completed(asked):
                answer: bytes | None = await done
                if answer is not None:
                    return answer
            return None
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def arrivals(self) -> AsyncIterator[Sequence[Arrived]]:
        """Yield what arrives in any of the stores."""
        arrived: asyncio.Queue[Sequence[Arrived] | StoreError | None] = asyncio.Queue(maxsize=1)

        async def pass_on(name: str, part: SharedProvider) -> None:
            await self._stores.until_up(name)
            try:
                async for some in part.mailbox.arrivals():
                    here = [_Came(**asdict(one), store=name) for one in some if not self._is_of_another(one, name)]
                    await self._send_on([one for one in some if self._is_of_another(one, name)], name)
                    if here:
                        await arrived.put(here)
            except StoreError as error:
                await arrived.put(error)
            else:
                await arrived.put(None)

        tasks = [begin_soon(pass_on(name, part)) for name, part in self._stores.shared.items()]
        running = len(tasks)
        try:
            while running:
                some = await arrived.get()
                if isinstance(some, StoreError):
                    raise some
                if some is None:
                    running -= 1
                else:
                    yield some
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def end(self, done: Sequence[tuple[Arrived, bytes]]) -> None:
        """Note in the stores where these calls lie that they were done."""
        by_store: dict[str, list[tuple[Arrived, bytes]]] = {}
        for one in done:
            store = one[0].store if isinstance(one[0], _Came) else self._stores.store_name(one[0].actor)
            by_store.setdefault(store, []).append(one)
        for name, some in by_store.items():
            await self._stores.shared[name].mailbox.end(some)

    # ---- Mail in a wrong store -------------------------------------------------------------------

    def _is_of_another(self, one: Arrived, store: str) -> bool:
        """Tell whether mail is for an actor of another shared store. Only an app that writes mail itself can be so
        wrong."""
        with suppress(ResidencyError):  # whoever does it is told why it is refused
            name = self._stores.store_name(one.actor)
            return name != store and name in self._stores.shared
        return False

    async def _send_on(self, some: Sequence[Arrived], store: str) -> None:
        """Bring calls to the store of their actors, whose owner there does them; then end them here. What does not get
        there comes again."""
        if not some:
            return
        results = await asyncio.gather(*(self.bring(one) for one in some), return_exceptions=True)
        sent = [one for one, result in zip(some, results, strict=True) if result is None]
        for result in results:
            if result is not None and not isinstance(result, (StoreError, OverloadedError)):
                raise result
        if sent:
            where = sorted({self._stores.store_name(one.actor) for one in sent})
            log.warning(
                "%d calls of an outbox lay in the mail of the store %s and were brought to %s, where %s belongs: write "
                "them there", len(sent), store, ", ".join(where), sent[0].actor,
            )  # fmt: skip
            await self._stores.shared[store].mailbox.end([(one, b"") for one in sent])


@dataclass(frozen=True, slots=True)
class _Came(Arrived):
    """A call, and the store in whose mail it lies."""

    store: str = ""


async def _answer(box: Mailbox, op: str, wait_s: float) -> bytes | None:
    return await box.answer(op, wait_s)
