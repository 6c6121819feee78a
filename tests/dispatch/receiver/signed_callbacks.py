"""Signed callbacks as a scheduler sends them, and a clock that moves only when told to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tocsin.dispatch.callback import Callback
from tocsin.dispatch.dispatcher import body_of
from tocsin.dispatch.receiver.dedup import Dedup
from tocsin.dispatch.receiver.receiver import Receiver
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.transport import Answer
from tocsin.dispatch.values import encode

SECRET = "whsec_" + "c2VjcmV0IG9mIGF0IGxlYXN0IDI0IGJ5dGVz"
OTHER = "whsec_" + "YW5vdGhlciBzZWNyZXQgb2YgMjQrIGJ5dGVzISE="
NOW_MS = 1_795_961_700_000


class Clock:
    """Wall and monotonic time together."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def forward(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


class Scheduler:
    """Makes the callbacks of one job after the other, each attempt with a lease of its own."""

    def __init__(self, clock: Clock, secret: str = SECRET) -> None:
        self._clock, self._signer = clock, Signer([secret])
        self._leases = 0

    def callback(self, args: Any = None, **more: Any) -> Callback:
        self._leases += 1
        given: dict[str, Any] = {
            "id": "job-1", "incarnation": "i1", "args": encode(args), "scheduled_for": NOW_MS, "attempt": self._leases,
            "lease": f"7.{self._leases}.{self._leases:024x}", "instance": "default", "function_path": "invoices:send",
        }  # fmt: skip
        return Callback(**(given | more))

    def request(self, args: Any = None, **more: Any) -> tuple[dict[str, str], bytes]:
        """Headers and body of a new attempt."""
        callback = self.callback(args, **more)
        return self.signed(callback, body_of(callback))

    def signed(self, callback: Callback, body: bytes) -> tuple[dict[str, str], bytes]:
        webhook_id, stamp = f"{callback.id}:{callback.incarnation}", self._clock.ms // 1000
        return {
            "Content-Type": "application/json",
            "Webhook-Id": webhook_id,
            "Webhook-Timestamp": str(stamp),
            "Webhook-Signature": self._signer.sign(webhook_id, stamp, body),
            "Tocsin-Attempt": str(callback.attempt),
            "Tocsin-Lease": callback.lease,
            "Tocsin-Deadline": str(self._clock.ms + callback.timeout_ms),
            "Traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
        }, body  # fmt: skip


class ReceiverFixture:
    """A receiver under test, its clock and its scheduler."""

    def __init__(self, dedup: Dedup | None = None, **options: Any) -> None:
        self.clock = Clock()
        self.scheduler = Scheduler(self.clock)
        self.receiver = Receiver(options.pop("secrets", [SECRET]), dedup=dedup, clock=self.clock, **options)

    async def send(self, args: Any = None, **more: Any) -> Answer:
        """A new attempt."""
        return await self.receiver.handle(*self.scheduler.request(args, **more))


def error(answer: Answer) -> Mapping[str, str]:
    """The envelope's inside."""
    content: dict[str, Any] = msgspec.json.decode(answer.body)
    assert list(content) == ["error"]
    found: Mapping[str, str] = content["error"]
    return found
