"""The span of a handler behind each face of a receiver."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dispatch.receiver import faces
from tests.dispatch.receiver import signed_callbacks as signed
from tests.spans import Spans, trace_of
from tocsin import Receiver

pytestmark = pytest.mark.anyio
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("face", faces.FACES)
async def test_a_handler_runs_in_the_trace_of_its_callback_behind_every_face(face: str) -> None:
    spans, clock = Spans(), signed.Clock()
    headers, body = signed.Scheduler(clock).request()

    def handler(args: Any) -> None:
        with spans.tracer.start_as_current_span("query"):
            pass

    async with Receiver([signed.SECRET], clock=clock, tracing=spans.provider) as receiver:
        receiver.register({"invoices:send": handler})
        answer = await faces.FACES[face](receiver, "POST", {**headers, "Traceparent": PARENT}, body)

    assert answer.status == 200
    assert spans.lineage(spans.one("query")) == ["?", "process invoices:send", "query"]
    assert trace_of(spans.one("query")) == TRACE


async def test_the_span_of_a_web_framework_stays_between_the_callback_and_the_handler() -> None:
    spans, clock = Spans(), signed.Clock()
    async with Receiver([signed.SECRET], clock=clock, tracing=spans.provider) as receiver:
        receiver.register({"invoices:send": lambda args: None})
        with spans.tracer.start_as_current_span("POST /callback") as server:
            here = server.get_span_context()
            for trace in (f"{here.trace_id:032x}", TRACE):
                headers, body = signed.Scheduler(clock).request(id=trace[:8])
                await receiver.handle({**headers, "Traceparent": f"00-{trace}-{SPAN}-01"}, body)

    ours, theirs = spans.named("process invoices:send")
    assert ours.parent is not None and ours.parent.span_id == here.span_id
    assert theirs.parent is not None and f"{theirs.parent.span_id:016x}" == SPAN
