"""OpenTelemetry for tests: a provider of their own, whose spans are kept."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext


class Spans:
    """A provider, and what its tracers made."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = self.provider.get_tracer("app")

    @property
    def all(self) -> list[ReadableSpan]:
        """Return the spans that have ended, in that order."""
        return list(self._kept.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def lineage(self, span: ReadableSpan) -> list[str]:
        """Return the names from the root of its trace down to the span. A parent that nobody made is `?`."""
        names, by_id = [span.name], {id_of(one): one for one in self.all}
        while span.parent is not None:
            above = by_id.get(f"{span.parent.span_id:016x}")
            if above is None:
                return ["?", *names]
            span = above
            names.insert(0, span.name)
        return names


def id_of(span: ReadableSpan) -> str:
    return f"{context_of(span).span_id:016x}"


def parent_of(span: ReadableSpan) -> str:
    """Return what a child of the span is told, as a header."""
    context = context_of(span)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def trace_of(span: ReadableSpan) -> str:
    return f"{context_of(span).trace_id:032x}"


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def said(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})
