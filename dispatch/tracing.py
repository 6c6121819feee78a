"""Spans, by the API of OpenTelemetry, in a process that uses it: where a job is scheduled, for each attempt, and around
each handler.

Nothing here imports that API before the process has: whoever does not use it has no spans, and pays for one look into a
dictionary (`API in modules`). What a trace needs to go on without spans is in `trace_context`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from random import Random
from sys import modules
from typing import TYPE_CHECKING, Any, Final, Protocol

from tocsin.dispatch.callback import AttemptOutcome, Callback, Verdict
from tocsin.dispatch.pulled import Claimed
from tocsin.dispatch.trace_context import KNOWN_FLAGS, Trace, child, parse
from tocsin.dispatch.words import kind_of
from tocsin.errors import SettingsError, TocsinError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, SpanKind, Tracer

API: Final = "opentelemetry.trace"
"""The module that whoever uses OpenTelemetry has loaded."""
SYSTEM: Final = "tocsin"
UNTRACED: Final = nullcontext()
"""The block in which a handler runs where there are no spans."""
FINE: Final = frozenset({Verdict.DONE, Verdict.ACCEPTED, Verdict.DECLINED, Verdict.BUSY, Verdict.STOPPED})
"""Ends of an attempt that are no errors: it succeeded, or is to come again without fault."""


LATER: Final = "RETRY_LATER"
"""The code of an error with which a handler asks to be called later, and does not fail."""


class Handled(Protocol):
    """A job as its handler gets it: pulled, or received."""

    @property
    def id(self) -> str: ...
    @property
    def webhook_id(self) -> str: ...
    @property
    def function_path(self) -> str | None: ...
    @property
    def workflow(self) -> str | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def traceparent(self) -> str | None: ...
    @property
    def tracestate(self) -> str | None: ...


class Tracers(Protocol):
    """Makes tracers: an OpenTelemetry `TracerProvider`."""

    def get_tracer(self, name: str, /) -> Any: ...


class Tracing:
    """Makes the spans of a host, a client, a worker or a receiver. `given`: True for the provider that the process has
    set, False for no spans, or a provider. Without a provider, what goes on is the trace of the current context."""

    def __init__(self, given: bool | Tracers = True) -> None:
        if not isinstance(given, bool) and not callable(getattr(given, "get_tracer", None)):
            raise SettingsError(f"tracing must be True, False or a TracerProvider, not {kind_of(given)}")
        self._on, self._provider = given is not False, None if isinstance(given, bool) else given
        self._tracer: Tracer | None = None

    # ---- Spans -----------------------------------------------------------------------------------

    def scheduled(
        self, instance: str, job_id: str, target: str, queue: str | None, parent: Trace | None
    ) -> Trace | None:
        """Return the trace of a job that is being scheduled: of its own span, or of the current one, or else `parent`,
        with which the request came."""
        if not self._on:
            return parent
        trace = modules[API]  # not imported here, which costs more than all the rest
        here = trace.get_current_span().get_span_context()
        tracer = self._tracer
        if tracer is None and (
            self._provider or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        ):
            tracer = self.tracer_now()
        if tracer is None:
            return _said(here) if here.is_valid else parent
        span = tracer.start_span(
            f"schedule {target}",
            None if here.is_valid or parent is None else _context_of(parent),
            trace.SpanKind.PRODUCER,
            _attributes("schedule", "create", instance, job_id, target, queue or target, message_id=job_id),
        )
        span.end()
        own = span.get_span_context()
        return _said(own) if own.is_valid else parent

    @contextmanager
    def sending(self, callback: Callback, random: Random) -> Iterator[Sending]:
        """Give one attempt its span, in which it is sent."""
        tracer, target = self.tracer_now(), callback.function_path or callback.workflow or ""
        if tracer is None:
            yield Sending(None, None)
            return
        from opentelemetry.trace import SpanKind, use_span

        span = _begun(
            tracer, "attempt", "send", SpanKind.CLIENT, callback.trace, callback.instance, callback.id, target, target,
            message_id=f"{callback.id}:{callback.incarnation}", attempt=callback.attempt,
        )  # fmt: skip
        with use_span(span, end_on_exit=True):
            yield Sending(span, _own_or_child(span.get_span_context(), callback.trace, random))

    def claimed(self, job: Claimed, trace: Trace, random: Random) -> Trace:
        """Return the trace that goes to a worker with a job: of a span that says that the worker got it."""
        if (tracer := self.tracer_now()) is None:
            return child(trace, random)
        from opentelemetry.trace import SpanKind

        span = _begun(
            tracer, "claim", "receive", SpanKind.CLIENT, trace, job.instance_name, job.id, _target_of(job), job.queue,
            message_id=job.webhook_id, attempt=job.attempt,
        )  # fmt: skip
        span.end()
        return _own_or_child(span.get_span_context(), trace, random) or child(trace, random)

    @contextmanager
    def handling(self, job: Handled, instance: str, queue: str | None = None) -> Iterator[None]:
        """Give a handler its span, which is the current one while it runs: a child of what sent the job, or of the web
        framework's span, where that goes on with the same trace. `queue`: where a worker pulled it from."""
        if not self._on:
            yield
            return
        from opentelemetry import context, trace

        sent = parse(job.traceparent, job.tracestate)
        here = trace.get_current_span().get_span_context()
        if (tracer := self.tracer_now()) is None:
            if sent is None or (here.is_valid and _same_trace(here, sent)):
                yield
                return
            token = context.attach(_context_of(sent))
            try:
                yield
            finally:
                context.detach(token)
            return
        is_inside = queue is None and here.is_valid and (sent is None or _same_trace(here, sent))
        span = tracer.start_span(
            f"process {_target_of(job)}",
            None if is_inside else _context_of(sent),
            trace.SpanKind.CONSUMER,
            _attributes(
                "process", "process", instance, job.id, _target_of(job), queue or _target_of(job),
                message_id=job.webhook_id, attempt=job.attempt,
            ),
        )  # fmt: skip
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                _note_error(span, error)
                raise

    # ---- The tracer ------------------------------------------------------------------------------

    def tracer_now(self) -> Tracer | None:
        """Return the tracer, or None while there is no provider."""
        if self._tracer is None and self._on and API in modules:
            trace, provider = modules[API], self._provider
            if provider is None:
                provider = trace.get_tracer_provider()
                if isinstance(provider, trace.ProxyTracerProvider):
                    return None  # the process has set none yet
            self._tracer = provider.get_tracer(SYSTEM)
        return self._tracer


class Sending:
    """One attempt on its way, and its span if it has one. `trace`: what the receiver is told, if that is of a span."""

    __slots__ = ("_span", "trace")

    def __init__(self, span: Span | None, trace: Trace | None) -> None:
        self._span, self.trace = span, trace

    def ended(self, outcome: AttemptOutcome) -> None:
        """Note how the attempt ended."""
        span = self._span
        if span is None:
            return
        span.set_attribute("tocsin.outcome", outcome.verdict.value)
        if outcome.status is not None:
            span.set_attribute("http.response.status_code", outcome.status)
        if outcome.verdict not in FINE:
            from opentelemetry.trace import Status, StatusCode

            span.set_attribute("error.type", str(outcome.status or outcome.code or outcome.verdict.value))
            span.set_status(Status(StatusCode.ERROR, outcome.message))


# ---- OpenTelemetry's values ----------------------------------------------------------------------


def _begun(
    tracer: Tracer,
    name: str,
    kind_of_operation: str,
    kind: SpanKind,
    trace: Trace | None,
    instance: str,
    job_id: str,
    target: str,
    destination: str,
    *,
    message_id: str,
    attempt: int,
) -> Span:
    """Begin a span of an attempt: in the job's trace, or in a new one."""
    said = _attributes(
        name, kind_of_operation, instance, job_id, target, destination, message_id=message_id, attempt=attempt
    )
    return tracer.start_span(f"{name} {target}", _context_of(trace), kind, said)


def _attributes(
    name: str,
    kind: str,
    instance: str,
    job_id: str,
    target: str,
    destination: str,
    *,
    message_id: str,
    attempt: int | None = None,
) -> Mapping[str, str | int]:
    """Return what a span says, by the conventions for messaging. Args are never among it."""
    said: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": destination,
        "messaging.message.id": message_id,
        "tocsin.instance": instance,
        "tocsin.job.id": job_id,
        "tocsin.path": target,
    }
    if attempt is not None:
        said["tocsin.attempt"] = attempt
    return said


def _target_of(job: Handled) -> str:
    return job.function_path or job.workflow or ""


def _said(context: SpanContext) -> Trace:
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & KNOWN_FLAGS:02x}"
    return parent, context.trace_state.to_header()


def _own_or_child(own: SpanContext, trace: Trace | None, random: Random) -> Trace | None:
    """Return the trace of a span. One that is not recorded may have no id of its own: then it gets one here."""
    if own.is_valid and (trace is None or f"{own.span_id:016x}" != trace[0][36:52]):
        return _said(own)
    return None if trace is None else child(trace, random)


def _same_trace(context: SpanContext, trace: Trace) -> bool:
    return f"{context.trace_id:032x}" == trace[0][3:35]


def _context_of(trace: Trace | None) -> Context:
    """Return a context whose current span is that one, from elsewhere; of none, a context without a span."""
    from opentelemetry import trace as api
    from opentelemetry.context import Context

    if trace is None:
        return Context()
    parent, state = trace
    remote = api.SpanContext(
        int(parent[3:35], 16), int(parent[36:52], 16), is_remote=True,
        trace_flags=api.TraceFlags(int(parent[53:], 16)), trace_state=api.TraceState.from_header([state]),
    )  # fmt: skip
    return api.set_span_in_context(api.NonRecordingSpan(remote), Context())


def _note_error(span: Span, error: BaseException) -> None:
    """Record what a handler raised. One that asks to be called later has not failed."""
    if isinstance(error, TocsinError) and error.code == LATER:
        span.set_attribute("tocsin.outcome", "later")
        return
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", type(error).__qualname__)
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
