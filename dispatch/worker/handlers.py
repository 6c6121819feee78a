"""Handlers of a worker, in groups: their owner, their wrapper and their timeout."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tocsin.dispatch.catalog.catalog import Catalog
from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.dispatch.pulled import Claimed
from tocsin.dispatch.receiver.handlers import FUNCTION, WORKFLOW, Handler, Registered, registered
from tocsin.dispatch.receiver.outcomes import RetryLater, TerminalError
from tocsin.dispatch.threads import outcome_in_thread
from tocsin.errors import InvalidInputError, SettingsError

if TYPE_CHECKING:
    from tocsin.dispatch.worker.context import Context

H = TypeVar("H", bound=Handler)
Run = Callable[[], Awaitable[Any]]
Wrapper = Callable[[Run, "Context"], Awaitable[Any]]
"""`async def wrapper(run, context)`: awaits `run()` and returns what that gave."""

DEFAULT_OWNER: Final = "app"


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The handlers of one registration."""

    owner: str
    wrapper: Wrapper | None


@dataclass(frozen=True, slots=True)
class Handling:
    """One handler, and all that its registration said."""

    registered: Registered
    group: Group
    timeout_ms: int | None = None

    @property
    def is_async(self) -> bool:
        return self.registered.is_async

    async def __call__(self, args: Any, context: Context, threads: ThreadPoolExecutor) -> Any:
        """Return what the handler returned, inside its group's wrapper. TerminalError if it declares other args."""
        one = self.registered
        if one.read is not None:
            try:
                args = one.read(args)
            except InvalidInputError as error:  # another attempt would bring the same args
                raise TerminalError(f"the handler takes other args: {error.message}") from None
        arguments = (args, context) if one.takes_job else (args,)
        if self.group.wrapper is None:
            return await self._run(arguments, threads)
        return await self.group.wrapper(partial(self._run, arguments, threads), context)

    async def _run(self, arguments: tuple[Any, ...], threads: ThreadPoolExecutor) -> Any:
        if self.registered.is_async:
            return await self.registered.handler(*arguments)
        result = await in_thread(threads, self.registered.handler, arguments)
        # A plain function may have made a coroutine, as `lambda args: send(args)` does.
        return await result if inspect.isawaitable(result) else result


@dataclass(slots=True, repr=False)
class Handlers:
    """Handlers by function path and by workflow. Several workers may share one.

    Handlers are registered in groups that belong to an owner: a module, a plugin, a tenant. What registers them
    returns a clean-up that takes out exactly those, and may be called twice.
    """

    _by_name: dict[tuple[str, str], Handling] = field(default_factory=dict)
    _catalog: Catalog | None = None
    """Of those above, until they change."""

    def __repr__(self) -> str:
        return f"Handlers({', '.join(repr(name) for _, name in self._by_name)})"

    def __len__(self) -> int:
        return len(self._by_name)

    def register(
        self,
        owner: str,
        handlers: Mapping[str, Handler] | None = None,
        *,
        workflows: Mapping[str, Handler] | None = None,
        wrapper: Wrapper | None = None,
        timeout: Duration | None = None,
    ) -> Callable[[], None]:
        """Register all of a group, or with a SettingsError none. Return the clean-up that takes them out again.

        A handler takes `(args)` or `(args, context)`; `async def` runs in the event loop, `def` in a thread.
        `wrapper`, `async def wrapper(run, context)`, stands around every execution and returns what `await run()`
        gave. An attempt that takes longer than `timeout` (or the job's own, if that is shorter) has failed. After the
        clean-up, attempts that run are not stopped; later jobs go back to their queue.
        """
        if not isinstance(owner, str) or not owner:
            raise SettingsError(f"owner must be a name, not {owner!r}")
        if wrapper is not None and not _is_async(wrapper):
            raise SettingsError(f"the wrapper of {owner!r} must be an `async def` that takes (run, context)")
        group, timeout_ms = Group(owner, wrapper), _timeout_ms(owner, timeout)
        named = {(FUNCTION, path): handler for path, handler in (handlers or {}).items()}
        named |= {(WORKFLOW, name): handler for name, handler in (workflows or {}).items()}
        new = {place: Handling(self._checked(owner, *place, one), group, timeout_ms) for place, one in named.items()}
        self._by_name.update(new)
        self._catalog = None

        def clean_up() -> None:
            for place, handling in new.items():
                if self._by_name.get(place) is handling:  # not what somebody registered since
                    del self._by_name[place]
                    self._catalog = None

        return clean_up

    def handler(
        self, function_path: str, *, owner: str = DEFAULT_OWNER, timeout: Duration | None = None
    ) -> Callable[[H], H]:
        """Decorate the handler of a function path."""
        if callable(function_path):
            raise SettingsError('name the function: @handlers.handler("invoices:send")')

        def decorated(handler: H) -> H:
            self.register(owner, {function_path: handler}, timeout=timeout)
            return handler

        return decorated

    @property
    def is_empty(self) -> bool:
        """Return whether nothing has a handler now."""
        return not self._by_name

    def find(self, job: Claimed) -> Handling | None:
        """Return the handler of this job at this moment, None if there is none."""
        if job.function_path is not None:
            return self._by_name.get((FUNCTION, job.function_path))
        return self._by_name.get((WORKFLOW, job.workflow or ""))

    def functions(self) -> dict[str, Handler]:
        """Return the handlers of function paths."""
        return self._of(FUNCTION)

    @property
    def catalog(self) -> Catalog:
        """Return what they declare, for `ActorHost.open(catalog=lambda: handlers.catalog)`.

        Then a host takes only jobs that somebody handles, with args that fit. SettingsError if an annotation cannot be
        checked.
        """
        if self._catalog is None:
            self._catalog = Catalog.from_handlers(self._of(FUNCTION), workflows=self._of(WORKFLOW))
        return self._catalog

    def _of(self, wanted: str) -> dict[str, Handler]:
        return {name: one.registered.handler for (kind, name), one in self._by_name.items() if kind == wanted}

    def _checked(self, owner: str, kind: str, name: str, handler: Handler) -> Registered:
        if not isinstance(name, str) or not name:
            raise SettingsError(f"the {kind} of a handler of {owner!r} must be named by a text, not {name!r}")
        if (taken := self._by_name.get((kind, name))) is not None:
            raise SettingsError(
                f"the {kind} {name!r} has a handler of {taken.group.owner!r} already: each has one, so {owner!r} must "
                "wait for that one's clean-up"
            )
        return registered(name, handler, "context")


def _timeout_ms(owner: str, timeout: Duration | None) -> int | None:
    if timeout is None:
        return None
    try:
        ms = duration_ms(timeout, f"timeout of {owner!r}")
    except InvalidInputError as error:
        raise SettingsError(error.message) from None
    if ms < 1:
        raise SettingsError(f"timeout of {owner!r} must be longer than nothing")
    return ms


def _is_async(wrapper: object) -> bool:
    return inspect.iscoroutinefunction(wrapper) or inspect.iscoroutinefunction(getattr(wrapper, "__call__", None))  # noqa: B004


async def in_thread(threads: ThreadPoolExecutor, handler: Handler, arguments: tuple[Any, ...]) -> Any:
    """Return what the handler returns on a thread; see `outcome_in_thread`."""
    try:
        result, error = await outcome_in_thread(threads, handler, *arguments)
    except RuntimeError as refused:
        raise RetryLater(1, f"no thread can be had for it: {refused}") from refused
    if error is not None:
        raise error
    return result
