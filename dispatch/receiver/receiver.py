"""The receiver: from a request to its answer. Verify, decode, claim, run, record, answer, in this order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from sys import modules
from typing import Any, Final, Self, TypeVar

from tocsin.dispatch.catalog.catalog import Catalog
from tocsin.dispatch.clock import DispatchClock, SystemDispatchClock
from tocsin.dispatch.pulled import MAX_RESULT
from tocsin.dispatch.receiver import answers
from tocsin.dispatch.receiver.blocking import NoThread
from tocsin.dispatch.receiver.dedup import Claim, Dedup, Found, MemoryDedup, Record
from tocsin.dispatch.receiver.deliveries import Deliveries
from tocsin.dispatch.receiver.handlers import FUNCTION, THREADS, WORKFLOW, Handler, Handlers
from tocsin.dispatch.receiver.outcomes import Accepted, HandlerError, RetryLater
from tocsin.dispatch.receiver.reading import Bounds, Headers, Secrets, Signers, read
from tocsin.dispatch.receiver.received import Received
from tocsin.dispatch.receiver.views import Views
from tocsin.dispatch.signing import MAX_AGE_S, MAX_AHEAD_S
from tocsin.dispatch.tracing import API, UNTRACED, Tracers, Tracing
from tocsin.dispatch.transport import Answer
from tocsin.dispatch.values import encode
from tocsin.errors import InvalidInputError, PayloadTooLargeError, SettingsError, SignatureError, TocsinError

log = logging.getLogger("tocsin.receiver")

H = TypeVar("H", bound=Handler)
MAX_BODY: Final = 1024 * 1024
STALE_S: Final = 15 * 60.0
LEASE_GRACE_MS: Final = 15_000
"""The time by which a lease outlasts its callback's deadline."""
DRAIN_S: Final = 10.0
WHY_DECLINED: Final = {
    Found.RUNNING: "an earlier delivery of this job is still at work here",
    Found.SEEN: "this attempt was here before",
}


class Receiver(Views):
    """Takes callbacks: an ASGI app to mount or serve at any path, a WSGI app (`wsgi`), views of frameworks
    (`flask_view`, `django_view`, `aiohttp_handler`), and `handle` and `handle_sync` for every other one.

    `secrets` are the scheduler's, or a function that returns them, asked at each request, so they rotate without a
    restart. `dedup` (memory, if not given) runs each job once; give a `SQLiteDedup` where several processes or a
    restart matter. A delivery's claim lapses after `stale_s` seconds, or 15 s after its deadline if that is later.
    Plain functions run in at most `threads` threads. A callback is taken up to `max_age_s` after it was sent and, for
    clocks that differ, up to `max_ahead_s` before. `tracing` as for `ActorHost.open`. Raises SettingsError.
    """

    def __init__(
        self,
        secrets: Secrets,
        *,
        dedup: Dedup | None = None,
        max_body: int = MAX_BODY,
        stale_s: float = STALE_S,
        threads: int = THREADS,
        max_age_s: float = MAX_AGE_S,
        max_ahead_s: float = MAX_AHEAD_S,
        clock: DispatchClock | None = None,
        tracing: bool | Tracers = True,
    ) -> None:
        if isinstance(max_body, bool) or not isinstance(max_body, int) or max_body < 1:
            raise SettingsError(f"max_body must be a positive number of bytes, not {max_body!r}")
        if isinstance(stale_s, bool) or not isinstance(stale_s, (int, float)) or not 1 <= stale_s <= 86_400:
            raise SettingsError(f"stale_s must be 1 to 86400 seconds, not {stale_s!r}")
        self._signers, self._bounds = Signers(secrets), Bounds(max_age_s, max_ahead_s)
        self.dedup: Dedup = MemoryDedup() if dedup is None else dedup
        self._done = Record(self.dedup)
        self.max_body, self._stale_ms = max_body, int(stale_s * 1000)
        self._clock = clock or SystemDispatchClock()
        self._tracing = Tracing(tracing)
        self._handlers = Handlers(threads)
        self._deliveries = Deliveries()
        self._stopping, self._closed, self._entered = False, False, 0

    # ---- Handlers --------------------------------------------------------------------------------

    def handler(self, function_path: str) -> Callable[[H], H]:
        """Decorate the handler of a function path: `(args)` or `(args, job)`, `async def` or `def` (in a thread).

        `job` is a `Received`. `args` that are annotated with a struct, a dataclass or a pydantic model, or what is
        built of them, are made one; a job whose args do not fit is dead at once. Returning anything but an `Accepted`
        means done; what is returned is its result, if it is JSON and the types of docs/typed-args.md, 64 KiB at most.
        SettingsError if it does not fit.
        """
        return self._decorator(FUNCTION, function_path)

    def workflow(self, name: str) -> Callable[[H], H]:
        """Decorate the handler of a `workflow`. Call the instance it creates by `job.webhook_id`: ids come again."""
        return self._decorator(WORKFLOW, name)

    def register(
        self, handlers: Mapping[str, Handler] | None = None, *, workflows: Mapping[str, Handler] | None = None
    ) -> None:
        """Register many at once, by function path and by workflow; all of them or, with a SettingsError, none."""
        functions = {(FUNCTION, path): handler for path, handler in (handlers or {}).items()}
        self._handlers.add(functions | {(WORKFLOW, name): handler for name, handler in (workflows or {}).items()})

    @property
    def catalog(self) -> Catalog:
        """Return what the handlers here declare of their args, for a host in the same process:
        `ActorHost.open(..., catalog=lambda: receiver.catalog)`. SettingsError names a type that cannot be checked."""
        return self._handlers.catalog()

    def _decorator(self, kind: str, name: str) -> Callable[[H], H]:
        if callable(name):
            raise SettingsError(f'name the {kind}: @receiver.handler("invoices:send")')

        def registered(handler: H) -> H:
            self._handlers.add({(kind, name): handler})
            return handler

        return registered

    # ---- Requests --------------------------------------------------------------------------------

    def verify(self, headers: Headers, body: bytes) -> Received:
        """Return a genuine callback, decoded; claim and run nothing.

        SignatureError for what is not signed with one of the secrets, or not within the bounds, PayloadTooLargeError,
        InvalidInputError for a signed body that is no callback, SettingsError if `secrets()` fails.
        """
        return self._read(headers, body)[0]

    def _read(self, headers: Headers, body: bytes) -> tuple[Received, int]:
        if len(body) > self.max_body:
            raise PayloadTooLargeError(f"the body has {len(body)} bytes, the limit is {self.max_body}")
        return read(headers, body, self._signers, self._clock, self._bounds)

    async def handle(self, headers: Headers, body: bytes) -> Answer:
        """Return the answer to a POST: status, headers and body, to be sent as they are.

        `body` is the bytes as they came; a TypeError for another type is all that is raised. The caller's cancellation
        does not stop the handler.
        """
        taken = self.take(headers, body)
        return taken if isinstance(taken, Answer) else await taken

    def take(self, headers: Headers, body: bytes) -> Answer | asyncio.Future[Answer]:
        """Begin what `handle` does: the answer where there is nothing to wait for, else its future."""
        read = self._admitted(headers, body)
        if isinstance(read, Answer):
            return read
        task = asyncio.get_running_loop().create_task(self._deliver(*read))
        self._deliveries.running.add(task)
        task.add_done_callback(self._deliveries.running.discard)
        return asyncio.shield(task)

    def handle_sync(self, headers: Headers, body: bytes) -> Answer:
        """Do as `handle`, for callers that block: each on its own thread, several at once.

        Plain functions are called on the caller's thread, where its context and its connections are. Coroutines run in
        one event loop of the receiver's own, on a thread that begins at the first need and ends with `close`.
        RuntimeError in a thread that runs an event loop: `await handle(...)` there.
        """
        read = self._admitted(headers, body)
        if isinstance(read, Answer):
            return read
        try:
            return self._deliveries.wait_for(lambda caller: self._deliver(*read, caller))
        except NoThread as error:
            log.error("a callback cannot be served: %s", error)
            return answers.unavailable("the receiver has no thread for it; its log says why")
        except asyncio.CancelledError:
            return _stopped()

    def _admitted(self, headers: Headers, body: bytes) -> tuple[Received, int] | Answer:
        """Return a genuine callback and when it arrived, or the answer to what is none."""
        if self._stopping:
            return _stopped()
        try:
            return self._read(headers, body)
        except SettingsError as error:
            log.error("a callback cannot be verified: %s", error.message)
            return answers.unavailable("the receiver has no usable secrets; its log says why")
        except (SignatureError, PayloadTooLargeError, InvalidInputError) as error:
            log.warning("a callback was refused: %s", error.message)
            return answers.refused(error)

    # ---- One delivery ----------------------------------------------------------------------------

    async def _deliver(self, job: Received, arrived_ms: int, threads: Executor | None = None) -> Answer:
        """Claim, run and record one delivery, in a task of its own; a plain function on `threads`, if not on ours.

        Cancelled (the process stops), it gives up its claim and still has an answer.
        """
        if (why_not := await self._claimed(job, arrived_ms)) is not None:
            return why_not
        found = self._handlers.find(job)
        if found is None:
            kind = FUNCTION if job.function_path is not None else WORKFLOW
            return await self._released(job, answers.unknown_target(kind, job.target))
        try:
            with self._tracing.handling(job, job.instance) if API in modules else UNTRACED:
                result = await self._handlers.call(found, job, threads)
                if isinstance(result, (RetryLater, HandlerError)):
                    raise result  # returned where it should have been raised, but clear enough
        except RetryLater as how:
            return await self._released(job, answers.later(how))
        except HandlerError as how:
            return await self._released(job, answers.said(how))
        except asyncio.CancelledError as error:
            return await self._released(job, _stopped() if _is_stopping() else answers.failed(job.target, error))
        except (KeyboardInterrupt, GeneratorExit):
            if threads is not None:  # raised on a caller's thread: this loop goes on
                await self._released(job, _stopped())
            raise  # else the process ends here, and the claim lapses later
        except BaseException as error:  # SystemExit and groups too: a handler's end must not be the server's
            log.error("job %s: the handler of %s failed", job.webhook_id, job.target, exc_info=error)
            return await self._released(job, answers.failed(job.target, error))
        return await self._concluded(job, result)

    async def _claimed(self, job: Received, arrived_ms: int) -> Answer | None:
        """Claim the job for this delivery. Return the answer of one that may not run, else None."""
        own_ms = 0 if job.timeout_s is None else int(job.timeout_s * 1000) + LEASE_GRACE_MS
        claim = Claim(job.webhook_id, job.lease, job.sent_ms, arrived_ms + max(self._stale_ms, own_ms))
        try:
            found = await self.dedup.claim(claim, now_ms=arrived_ms)
            if found is Found.DONE:
                return await self._done.answer(job.webhook_id, now_ms=self._clock.now_ms())
        except asyncio.CancelledError:
            return _stopped()
        except Exception as error:  # a store of the user's may fail in any way; without dedup nothing is run
            log.error("job %s: its claim failed", job.webhook_id, exc_info=error)
            return answers.unavailable("the dedup store does not answer; the receiver's log says why")
        if found is not Found.NEW:
            return answers.declined(WHY_DECLINED[found])
        if _is_stopping():
            return await self._released(job, _stopped())
        return None

    async def _concluded(self, job: Received, result: Any) -> Answer:
        """Record that the work is done or accepted. That is the answer, even if it cannot be recorded."""
        if result is Accepted:
            result = Accepted()
        if isinstance(result, Accepted):
            now = self._clock.now_ms()
            until = now + result.held_ms
            await self._record(job, self.dedup.hold(job.webhook_id, job.lease, until_ms=until, now_ms=now))
            return answers.accepted(result)
        answer = answers.DONE if result is None else _done(job, result)
        now = self._clock.now_ms()
        if not await self._record(job, self._done.finish(job.webhook_id, job.lease, answer, now_ms=now)):
            log.warning("job %s: done, but not on record: its claim had lapsed, or was not written", job.webhook_id)
        return answer

    async def _released(self, job: Received, answer: Answer) -> Answer:
        """Give up the claim before the answer goes out, so that the retry it brings about can run."""
        await self._record(job, self.dedup.release(job.webhook_id, job.lease, now_ms=self._clock.now_ms()))
        return answer

    async def _record(self, job: Received, change: Awaitable[bool]) -> bool:
        try:
            return await change
        except asyncio.CancelledError:
            return False  # the store broke off: the claim lapses
        except Exception as error:  # as above
            log.error("job %s: its claim could not be changed, and lapses later", job.webhook_id, exc_info=error)
            return False

    # ---- Life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take callbacks again after `aclose`; a new receiver does so by itself.

        SettingsError while it is being closed, and for a dedup store that has no `reopen()`: it was closed with it.
        """
        if not self._stopping:
            return
        if not self._closed:
            raise SettingsError(
                "this receiver is still being closed: await its aclose(), or the shutdown of the app that left it, and "
                "enter it again when that has ended; or make one receiver for each app"
            )
        reopen = getattr(self.dedup, "reopen", None)
        if reopen is None:
            raise SettingsError(
                f"{type(self.dedup).__name__} was closed with this receiver, and has no reopen(): make another receiver"
            )
        reopen()
        self._handlers.open()
        self._deliveries.open()
        self._stopping = self._closed = False

    async def aclose(self, drain_s: float = DRAIN_S) -> None:
        """Take no more callbacks (503), give handlers `drain_s` to end, cancel the coroutines among those left.

        Their claims are released and their callers asked to call again. Functions in threads are waited for: nothing
        can stop them. The dedup store is closed then. Cut off while it waits, it cancels the coroutines at once, and is
        closed all the same.
        """
        self._stopping = True
        try:
            await self._deliveries.drain(drain_s)
        finally:
            self._handlers.close()
            try:
                await self.dedup.aclose()
            finally:  # whatever became of them: it may be entered again
                self._deliveries.stop()
                self._closed = True

    def close(self, drain_s: float = DRAIN_S) -> None:
        """Do as `aclose`, blocking: for apps without an event loop, from `atexit` or a hook of their server."""
        if not self._closed:
            self._deliveries.close(lambda: self.aclose(drain_s))

    def __enter__(self) -> Self:
        self.open()
        self._entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if not self._entered:
            self.close()

    async def __aenter__(self) -> Self:
        self.open()
        self._entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._entered -= 1
        if not self._entered:  # who entered it first may still want it
            await self.aclose()


def _done(job: Received, returned: Any) -> Answer:
    """Answer with what the handler returned, as JSON. The work is done whatever that is: of a result that cannot be
    sent only the log here and the answer's body tell."""
    try:
        written = encode(returned, "result")
    except TocsinError as error:
        return _without_result(job, f"what the handler returned is no result: {error.message}")
    if len(written) > MAX_RESULT:
        return _without_result(job, f"the result has {len(written)} bytes, at most {MAX_RESULT} are sent")
    return answers.done(written)


def _without_result(job: Received, why: str) -> Answer:
    log.warning("job %s: done by the handler of %s, but %s", job.webhook_id, job.target, why)
    return answers.done_without_result(why)


def _stopped() -> Answer:
    return answers.unavailable("the receiver is stopping")


def _is_stopping() -> bool:
    """Return whether this task was cancelled, and not something inside it that lets that show."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
