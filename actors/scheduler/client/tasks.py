"""`Task` and `Tasks`: handlers that are scheduled by calls which a type checker checks, and are registered once for
workers and receivers alike."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import datetime
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from tocsin.actors.scheduler.client.job_checks import Job, JobOptions
from tocsin.dispatch.catalog.catalog import Catalog
from tocsin.dispatch.durations import Duration
from tocsin.dispatch.parameters import Handler, Parameters
from tocsin.dispatch.receiver.received import Received
from tocsin.dispatch.worker.context import Context
from tocsin.errors import SettingsError

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
A_co = TypeVar("A_co", covariant=True)
Awaited = Coroutine[Any, Any, str]
"""The id of a job, once it is awaited."""


class RunsJobs(Protocol[A_co]):
    """Schedules jobs: a `Scheduler`, here or over HTTP. `A_co`: the id of the job, to be awaited or at once."""

    def run_at(
        self, at: datetime | int, path: str | None = None, args: Any = ..., *, workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> A_co:  # fmt: skip
        """Do as `Scheduler.run_at`."""
        ...

    def run_after(
        self, delay: Duration, path: str | None = None, args: Any = ..., *, workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> A_co:  # fmt: skip
        """Do as `Scheduler.run_after`."""
        ...

    def run_debounced(
        self, debounce: Duration, path: str | None = None, args: Any = ..., *, workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> A_co:  # fmt: skip
        """Do as `Scheduler.run_debounced`."""
        ...


class Task(Generic[P, A]):
    """A handler with its function path, and the calls that schedule it, with the arguments of the handler itself.

    `P` are the parameters of the handler without its context, `A` is the id of the job, to be awaited. Each call checks
    its arguments before anything is stored, and raises an InvalidInputError that names the one that does not fit.
    Made by `Tasks.task` and `Scheduler.task`.
    """

    def __init__(
        self,
        path: str,
        handler: Handler,
        options: Mapping[str, Any],
        parameters: Parameters,
        jobs: Callable[[], RunsJobs[A]],
    ) -> None:
        self.path, self.handler = path, handler
        self._options, self._parameters, self._jobs = options, parameters, jobs

    def __repr__(self) -> str:
        return f"Task({self.path!r})"

    def on(self, jobs: RunsJobs[B]) -> Task[P, B]:
        """Return the same task on this scheduler, whatever it is bound to."""
        return Task(self.path, self.handler, self._options, self._parameters, lambda: jobs)

    def options(self, **options: Unpack[JobOptions]) -> Task[P, A]:
        """Return the same task with these options of its jobs, beside and before those it has: `id`, `pool`, `then`
        and all that `run_at` takes."""
        return Task(self.path, self.handler, {**self._options, **options}, self._parameters, self._jobs)

    def now(self, *args: P.args, **kwargs: P.kwargs) -> A:
        """Schedule a job that is due at once. The id."""
        return self.after(0, *args, **kwargs)

    def after(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> A:
        """Schedule a job after a delay: timedelta, seconds, or text like "90s", "5m". The id."""
        given: Any = self._options
        return self._jobs().run_after(delay, self.path, self._parameters.args_of(args, kwargs), **given)

    def at(self, at: datetime | int, /, *args: P.args, **kwargs: P.kwargs) -> A:
        """Schedule a job at an instant: aware datetime, or epoch ms. The id."""
        given: Any = self._options
        return self._jobs().run_at(at, self.path, self._parameters.args_of(args, kwargs), **given)

    def debounced(self, debounce: Duration, /, *args: P.args, **kwargs: P.kwargs) -> A:
        """Schedule a job that is due once nobody has asked for its id for so long; `options(id=..., max_wait=...)` say
        which, and the longest wait. The id."""
        given: Any = self._options
        return self._jobs().run_debounced(debounce, self.path, self._parameters.args_of(args, kwargs), **given)

    # ---- For what takes jobs as they are written down --------------------------------------------

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Return the job without an instant: for `then=`, where it starts at once, and `schedules.put`."""
        return Job(path=self.path, args=self._parameters.args_of(args, kwargs), options=self._options)

    def job_after(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Return the job after a delay: for `submit_many`, and for `then=`, where the delay counts from the end of the
        job before it."""
        args_of = self._parameters.args_of(args, kwargs)
        return Job(path=self.path, args=args_of, after=delay, options=self._options)

    def job_at(self, at: datetime | int, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Return the job at an instant: for `submit_many`."""
        return Job(path=self.path, args=self._parameters.args_of(args, kwargs), at=at, options=self._options)


class Tasks(Mapping[str, Handler]):
    """Tasks of an app, declared before there is a host. To workers and receivers they are handlers by function path:
    `Worker(jobs, tasks)`, `receiver.register(tasks)`, `handlers.register("app", tasks)`.
    """

    def __init__(self, *tasks: Task[Any, Any]) -> None:
        self._tasks: dict[str, Task[Any, Any]] = {}
        self._bound: list[RunsJobs[Any]] = []
        for one in tasks:
            self._add(one)

    def __repr__(self) -> str:
        return f"Tasks({', '.join(map(repr, self._tasks))})"

    def __getitem__(self, path: str) -> Handler:
        return self._tasks[path]._parameters.adapter

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def task(self, path: str, /, **options: Unpack[JobOptions]) -> Declaration:
        """Decorate the handler of a function path; `options` are those of its jobs, as `run_at` takes them.

        The handler's parameters are the args of its jobs; a first one that is annotated `JobContext` (or `Context`,
        or `Received`) is the context of the attempt, and none of them. SettingsError if it cannot be a handler.
        """
        if callable(path):
            raise SettingsError('name the task: @tasks.task("invoices:remind")')
        return Declaration(self, path, options)

    def bind(self, jobs: RunsJobs[Any]) -> Callable[[], None]:
        """Schedule on `jobs` what these tasks are called for from now on. Return the clean-up, which ends that and may
        be called twice: what was bound before is in force again."""
        self._bound.append(jobs)

        def unbind() -> None:
            for n, one in enumerate(self._bound):
                if one is jobs:
                    del self._bound[n]
                    return

        return unbind

    @property
    def catalog(self) -> Catalog:
        """Return what their handlers take, for `ActorHost.open(catalog=lambda: tasks.catalog)`.

        SettingsError if an annotation cannot be checked.
        """
        return Catalog({path: one._parameters.expected for path, one in self._tasks.items()})

    def _declared(self, path: str, handler: Handler, options: Mapping[str, Any]) -> Task[Any, Any]:
        def bound() -> RunsJobs[Any]:
            if not self._bound:
                raise SettingsError(
                    f"task {path!r} is bound to no scheduler: call it on one, task.on(jobs).after(...), or bind its "
                    "Tasks where the host is opened, tasks.bind(jobs)"
                )
            return self._bound[-1]

        task: Task[Any, Any] = Task(path, handler, dict(options), Parameters(path, handler), bound)
        self._add(task)
        return task

    def _add(self, task: Task[Any, Any]) -> None:
        if not isinstance(task, Task):
            raise SettingsError(f"a task must be a Task, as Scheduler.task makes it, not {type(task).__name__}")
        if task.path in self._tasks:
            raise SettingsError(f"there is a task {task.path!r} already: each function path has one handler")
        self._tasks[task.path] = task


class Declaration:
    """Decorator that makes a task of a function."""

    def __init__(self, tasks: Tasks, path: str, options: Mapping[str, Any]) -> None:
        self._tasks, self._path, self._options = tasks, path, options

    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], Any], /) -> Task[P, Awaited]: ...
    @overload
    def __call__(self, handler: Callable[Concatenate[Received, P], Any], /) -> Task[P, Awaited]: ...
    @overload
    def __call__(self, handler: Callable[P, Any], /) -> Task[P, Awaited]: ...
    def __call__(self, handler: Handler, /) -> Task[Any, Any]:
        """Return the task. SettingsError if the function cannot be a handler, or its path has one."""
        return self._tasks._declared(self._path, handler, self._options)


class TaskMaker(Generic[A]):
    """`Scheduler.task`: makes tasks that are bound to that scheduler."""

    def __init__(self, jobs: RunsJobs[A]) -> None:
        self._jobs = jobs

    @overload
    def __call__(
        self, path: str, handler: Callable[Concatenate[Context, P], Any], /, **options: Unpack[JobOptions]
    ) -> Task[P, A]: ...
    @overload
    def __call__(
        self, path: str, handler: Callable[Concatenate[Received, P], Any], /, **options: Unpack[JobOptions]
    ) -> Task[P, A]: ...
    @overload
    def __call__(self, path: str, handler: Callable[P, Any], /, **options: Unpack[JobOptions]) -> Task[P, A]: ...
    def __call__(self, path: str, handler: Handler, /, **options: Unpack[JobOptions]) -> Task[Any, Any]:
        """Return the task of a function path; `options` are those of its jobs. SettingsError as of `Tasks.task`."""
        return Task(path, handler, dict(options), Parameters(path, handler), lambda: self._jobs)
