"""How long slots have had no owner, as a host that is only sometimes asked can know it."""

from __future__ import annotations

import asyncio
from typing import Any

from tocsin.actors.scheduler.actor.store_watch import StoreWatch
from tocsin.storage.shared import StoreFacts


class Store:
    """A store with as many slots without an owner as a test says, and the clock of who looks at it."""

    unowned = 0
    now_s = 100.0

    async def facts(self) -> StoreFacts:
        return StoreFacts(host="h", hosts=[], unowned=self.unowned, mail=0, oldest_mail_ms=0, beat_ms=0)

    def monotonic(self) -> float:
        return self.now_s


def test_slots_are_said_to_be_unowned_only_after_they_were_seen_so_for_five_seconds() -> None:
    async def main() -> None:
        store: Any = Store()
        watch = StoreWatch(store, store)

        async def codes(after_s: float, unowned: int | None) -> list[str]:
            store.now_s += after_s
            if unowned is not None:
                store.unowned = unowned
                await watch.look()
            return [one.code for one in watch.causes()]

        assert await codes(0, 64) == []
        assert await codes(20, None) == [], "one look may have met a hand-over"
        assert await codes(300, 64) == [], "and one much later another"
        assert await codes(4, 64) == []
        assert await codes(2, 64) == ["SLOTS_UNOWNED"]
        assert await codes(2, 0) == []

    asyncio.run(main())
