"""What docs/receiving.md says of a callback is what is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pytest

from tests.dispatch.receiver.signed_callbacks import NOW_MS, SECRET, ReceiverFixture
from tocsin import Received
from tocsin.dispatch.callback import Callback, Occurrence
from tocsin.dispatch.dispatcher import Dispatcher, body_of
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.transport import Answer

PAGE: Final = (Path(__file__).parents[3] / "docs" / "receiving.md").read_text("utf-8")
COMES: Final = PAGE.partition("## What comes\n")[2].partition("\n## ")[0]
BODIES: Final = re.findall(r"^```json\n(.*?)\n```", COMES, re.MULTILINE | re.DOTALL)

SMALLEST = Callback(
    "invoice-42", "1", b'{"amount":5}', 1795962307484, 1, "1.7.k3jq8vwm", "default", function_path="invoices:send"
)
WHOLE = Callback(
    "cron-001795962300000-t83y4612nwqkz0zk", "1", b"{}", 1795962300000, 2, "1.9.p0x2cdya", "tenant-a",
    function_path="reports:send", pool="smtp", shard_key="eu", labels=("reports",),
    schedule=Occurrence("report", 1795962300000, 1795875900000, 2),
)  # fmt: skip

TRACED = msgspec.structs.replace(
    SMALLEST, trace=("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
)


def first_cells(table_header: str) -> str:
    """The first column of a table."""
    rows = COMES.partition(table_header)[2].partition("\n\n")[0].splitlines()[2:]
    return "\n".join(row.split("|")[1] for row in rows)


@pytest.mark.parametrize(("shown", "callback"), [*zip(BODIES, [SMALLEST, WHOLE], strict=True)])
def test_the_bodies_shown_are_what_is_sent(shown: str, callback: Callback) -> None:
    assert shown.encode() == body_of(callback)


def test_every_member_is_in_the_table_and_no_other() -> None:
    members = set(re.findall(r"`(\w+)`", first_cells("| member | is there | what it is |")))

    in_a_chain = msgspec.structs.replace(WHOLE, parent=("invoice-41", b"{}"))
    assert members == {*json.loads(body_of(in_a_chain)), "workflow"}
    assert all(f"`{name}`" in COMES for name in json.loads(body_of(WHOLE))["schedule"])


class Wire:
    """A transport that keeps the headers."""

    def __init__(self) -> None:
        self.headers: Mapping[str, str] = {}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **bounds: Any) -> Answer:
        self.headers = headers
        return Answer(200, {}, b"")

    async def aclose(self) -> None: ...


@pytest.mark.anyio
async def test_every_header_is_in_the_table_and_no_other() -> None:
    wire = Wire()
    dispatcher = Dispatcher(wire, Signer([SECRET]), lambda: "https://app.example", random=Random(1))
    await dispatcher.attempt(TRACED, now_ms=NOW_MS)

    named = set(re.findall(r"`([a-z-]+)`", first_cells("| header | what it is |")))
    assert named | {"content-type"} == set(wire.headers)
    await dispatcher.attempt(SMALLEST, now_ms=NOW_MS)
    assert set(wire.headers) == (named | {"content-type"}) - {"tracestate"}, "a trace that begins here has no state"


@pytest.mark.anyio
@pytest.mark.parametrize("shown", BODIES)
async def test_the_kit_accepts_the_bodies_shown(shown: str) -> None:
    fixture = ReceiverFixture()
    seen: list[str] = []

    def run(args: object, job: Received) -> None:
        seen.append(job.id)

    fixture.receiver.register({"invoices:send": run, "reports:send": run})
    body = shown.encode()
    webhook_id, stamp = f"{json.loads(shown)['id']}:1", NOW_MS // 1000
    headers = {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": Signer([SECRET]).sign(webhook_id, stamp, body),
    }
    answer = await fixture.receiver.handle(headers, body)

    assert (answer.status, seen) == (200, [json.loads(shown)["id"]])
