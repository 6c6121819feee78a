"""The handlers of a receiver: what each takes, and how it is called (coroutines here, functions in a thread)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from tocsin.dispatch.catalog.catalog import Catalog
from tocsin.dispatch.catalog.handlers import POSITIONAL, reader_of
from tocsin.dispatch.receiver.outcomes import RetryLater, TerminalError
from tocsin.dispatch.receiver.received import Received
from tocsin.dispatch.threads import outcome_in_thread
from tocsin.errors import InvalidInputError, SettingsError

Handler = Callable[..., Any]
"""`handler(args)` or `handler(args, job)`, a coroutine function or a plain one."""

FUNCTION: Final = "function"
WORKFLOW: Final = "workflow"
THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class Registered:
    """A handler and how it is called; `takes_job`: with a second argument."""

    handler: Handler
    is_async: bool
    takes_job: bool
    read: Callable[[Any], Any] | None
    """Makes the args it declares; None: it takes them as they are."""


class Handlers:
    """The handlers of one receiver, by kind and name."""

    def __init__(self, threads: int = THREADS) -> None:
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise SettingsError(f"threads must be a positive number, not {threads!r}")
        self._by_name: dict[tuple[str, str], Registered] = {}
        self._catalog: Catalog | None = None
        self._at_most = threads
        self.open()

    def add(self, handlers: Mapping[tuple[str, str], Handler]) -> None:
        """Add all of them, by kind and name, or none. SettingsError names the one that does not fit."""
        new = {}
        for (kind, name), handler in handlers.items():
            if not isinstance(name, str) or not name:
                raise SettingsError(f"the {kind} of a handler must be named by a text, not {name!r}")
            if (kind, name) in self._by_name:
                raise SettingsError(f"the {kind} {name!r} has a handler already: each has one")
            new[kind, name] = registered(name, handler)
        self._by_name.update(new)
        self._catalog = None

    def find(self, job: Received) -> Registered | None:
        if job.function_path is not None:
            return self._by_name.get((FUNCTION, job.function_path))
        return self._by_name.get((WORKFLOW, job.target))

    async def call(self, found: Registered, job: Received, threads: Executor | None = None) -> Any:
        """Call a handler. A function that has begun on a thread is waited for, also when this task is cancelled.

        `threads`: where to call a plain function, if not on a thread of the receiver's.
        """
        args = job.args if found.read is None else _declared(found.read, job)
        arguments = (args, job) if found.takes_job else (args,)
        if found.is_async:
            return await found.handler(*arguments)
        try:
            result, error = await outcome_in_thread(threads or self._threads, _in_time, found.handler, arguments, job)
        except RuntimeError as refused:
            raise RetryLater(1, f"no thread can be had for it: {refused}") from refused
        if error is not None:
            raise error
        # A plain function may have made a coroutine, as `lambda args: send(args)` does.
        return await result if inspect.isawaitable(result) else result

    def catalog(self) -> Catalog:
        """Return what they declare, made anew when there are more of them. SettingsError if it cannot be checked."""
        if self._catalog is None:
            by_kind: dict[str, dict[str, Handler]] = {FUNCTION: {}, WORKFLOW: {}}
            for (kind, name), registered in self._by_name.items():
                by_kind[kind][name] = registered.handler
            self._catalog = Catalog.from_handlers(by_kind[FUNCTION], workflows=by_kind[WORKFLOW])
        return self._catalog

    def open(self) -> None:
        """Take threads, which are made as they are needed."""
        self._threads = ThreadPoolExecutor(self._at_most, thread_name_prefix="tocsin-handler")

    def close(self) -> None:
        """Let no function begin any more; running ones are not stopped."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _in_time(handler: Handler, arguments: tuple[Any, ...], job: Received) -> Any:
    """Call a handler that has a thread now, unless the scheduler no longer waits for the answer."""
    left = job.remaining_s()
    if left is not None and left <= 0:
        raise RetryLater(1, "no thread was free before the deadline")
    return handler(*arguments)


def _declared(read: Callable[[Any], Any], job: Received) -> Any:
    """Make the args that are declared. TerminalError if they do not fit: another attempt would bring the same."""
    try:
        return read(job.args)
    except InvalidInputError as error:
        raise TerminalError(f"{job.target} takes other args: {error.message}") from None


def registered(name: str, handler: Handler, second: str = "job") -> Registered:
    """Return a handler and how it is called. SettingsError if it takes other arguments than `(args)` or `(args, job)`.

    `second` is what the second one is called in that error.
    """
    if not callable(handler):
        raise SettingsError(f"the handler of {name!r} must be a function, not {type(handler).__name__}")
    called = handler if inspect.isroutine(handler) or inspect.isclass(handler) else type(handler).__call__
    if any(is_it(f) for f in (handler, called) for is_it in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)):
        raise SettingsError(f"the handler of {name!r} is a generator, which would never run: it must not yield")
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)
    return Registered(handler, is_async, _takes_job(name, handler, second), reader_of(handler))


def _takes_job(name: str, handler: Handler, second: str) -> bool:
    """Tell by the parameters without a default: one is `args` (which may have one), a second one the `Received`."""
    wanted = f"the handler of {name!r} must take (args) or (args, {second})"
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        raise SettingsError(f"{wanted}, and Python cannot tell what it takes: wrap it in a function") from None
    positional = [p for p in parameters if p.kind in POSITIONAL]
    needed = [p for p in positional if p.default is p.empty] or positional[:1]
    forced = [p.name for p in parameters if p.default is p.empty and p.kind is p.KEYWORD_ONLY]
    if forced:
        raise SettingsError(f"{wanted}, but it needs the keyword {forced[0]!r}: give that a default")
    if len(needed) not in (1, 2):
        raise SettingsError(
            f"{wanted}, but it needs {len(needed)} arguments: {', '.join(p.name for p in needed) or 'none'}"
        )
    return len(needed) == 2
