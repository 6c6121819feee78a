"""Tasks: calls with the arguments of a handler, checked before anything is stored, run by a worker or a receiver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.actors.scheduler import declared_tasks as app
from tests.actors.scheduler.declared_tasks import CALLS, Invoice, Order, Urgency
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tests.dispatch.worker.claim_sources import each_source, host_and_source
from tocsin import ActorHost, Job, JobContext, Receiver, Retry, Scheduler, Tasks, Worker
from tocsin.dispatch.asgi_transport import AsgiTransport
from tocsin.dispatch.parameters import Parameters
from tocsin.errors import InvalidInputError, JobFailedError, SettingsError
from tocsin.testing import FakeScheduler

DUE = datetime(2027, 1, 1, tzinfo=UTC)
INVOICE = Invoice(7, DUE, Decimal("10.50"))
SECRET = "whsec_" + "dGhlIHNlY3JldCBvZiB0aGVzZSB0ZXN0cyA6KQ=="


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    CALLS.clear()
    yield


@asynccontextmanager
async def working(tasks: Tasks, **options: Any) -> AsyncIterator[Scheduler]:
    async with ActorHost.open("memory:", catalog=lambda: tasks.catalog, **options) as host:
        jobs = host.scheduler("t")
        async with Worker(jobs, tasks):
            yield jobs


# ---- What arrives --------------------------------------------------------------------------------


@pytest.mark.anyio
@each_source
async def test_arguments_arrive_as_the_annotated_types(kind: str) -> None:
    """Scheduled and worked off here, and over HTTP."""
    tasks = Tasks()
    remind = tasks.task("invoices:remind", queue="mail", keep_result="1h")(app.remind)
    async with host_and_source(kind) as w, Worker(w.source, tasks):
        id = await remind.on(w.source).now(INVOICE, copies=3)
        result = await w.source.result(id, 10)

    assert [(id, "invoices:remind", INVOICE, Urgency.LOW, 3)] == CALLS
    assert result == {"number": 7, "due": DUE, "total": Decimal("10.50")}


@pytest.mark.anyio
async def test_one_declaration_serves_a_worker_and_a_receiver() -> None:
    tasks, receiver = Tasks(), Receiver([SECRET])
    remind = tasks.task("invoices:remind", keep_result="1h")(app.remind)
    receiver.register(tasks)
    async with (
        receiver,
        working(tasks, origin="https://app.example", secrets=[SECRET], transport=AsgiTransport(receiver)) as jobs,
    ):
        by_callback = await remind.on(jobs).now(INVOICE, Urgency.HIGH)
        pulled = await remind.on(jobs).options(queue="mail").now(INVOICE, Urgency.HIGH)
        assert await jobs.result(by_callback, 10) == await jobs.result(pulled, 10)

    assert sorted(call[0] for call in CALLS) == sorted([by_callback, pulled])
    assert [call[1:] for call in CALLS] == [("invoices:remind", INVOICE, Urgency.HIGH, 1)] * 2


@pytest.mark.anyio
async def test_models_of_pydantic_plain_functions_and_no_arguments_at_all() -> None:
    tasks = Tasks()
    order = tasks.task("order", queue="q", keep_result="1h")(app.order)
    add = tasks.task("add", queue="q", keep_result="1h")(app.add)
    nothing = tasks.task("nothing", queue="q", keep_result="1h")(app.nothing)
    async with working(tasks) as jobs:
        tasks.bind(jobs)
        assert await jobs.result(await order.now(Order(number=1), more=[Order(number=2)]), 10) == {"number": 1}
        assert await jobs.result(await add.now(10**30), 10) == 10**30 + 2
        assert await jobs.result(await nothing.now(), 10) is None

    assert [(Order(number=1), [Order(number=2)]), (10**30, 2), ()] == CALLS


@pytest.mark.anyio
async def test_a_default_is_the_handler_s_where_it_runs() -> None:
    """Only what is given is stored."""
    tasks = Tasks()
    add = tasks.task("add", queue="q")(app.add)
    async with ActorHost.open("memory:") as host:
        jobs = host.scheduler("t")
        record = await jobs.get(await add.on(jobs).after("1h", 1))

    assert record is not None and record.args == {"a": 1}


@pytest.mark.anyio
async def test_a_handler_of_a_task_says_how_it_failed() -> None:
    tasks = Tasks()
    declined = tasks.task("declined", queue="q", keep_result="1h")(app.declined)
    async with working(tasks) as jobs:
        with pytest.raises(JobFailedError) as told:
            await jobs.result(await declined.on(jobs).now(3), 10)

    assert (told.value.code, told.value.data) == ("declined", {"number": 3})


# ---- What is refused -----------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda task: task.now(), "^invoices:remind: missing a required argument: 'invoice'$"),
        (lambda task: task.now(INVOICE, Urgency.LOW, 3), "too many positional arguments"),
        (lambda task: task.now(INVOICE, number=1), "unexpected keyword argument 'number'"),
        (lambda task: task.now(3), "^args.invoice: expected object, got int$"),
        (lambda task: task.now(INVOICE, copies="3"), "^args.copies: expected int, got str$"),
        (lambda task: task.now(INVOICE, copies=True), "^args.copies: expected int, got bool$"),
        (lambda task: task.now(INVOICE, "loud"), "args.urgency: invalid enum value 'loud'"),
        (lambda task: task.now(Invoice(7, datetime(2027, 1, 1))), "args.invoice.due is a naive datetime"),
        (lambda task: task.now(INVOICE, copies=object()), "^args.copies cannot be written: it is or has an object"),
        (lambda task: task.after("soon", INVOICE), "delay"),
        (lambda task: task.at(3, INVOICE), "looks like seconds"),
        (lambda task: task.options(pool="a b").now(INVOICE), "pool"),
        (lambda task: task.options(pol="a").now(INVOICE), "unknown option 'pol'"),
        (lambda task: task.job(3), "args.invoice: expected object"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_before_anything_is_stored(
    call: Callable[[Any], Any], said: str
) -> None:
    async with ActorHost.open("memory:") as host:
        jobs = host.scheduler("t")
        remind = jobs.task("invoices:remind", app.remind, queue="mail")
        with pytest.raises(InvalidInputError, match=said):
            await call(remind)
        assert not (await jobs.list()).records


def _yields(a: int) -> Iterator[int]:
    yield a


async def _second(a: int, job: JobContext) -> None: ...
async def _keyword(a: int, *, job: JobContext) -> None: ...
async def _many(*a: int) -> None: ...
async def _any(**a: int) -> None: ...
async def _unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
async def _odd(a: Callable[[], None]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (3, "must be a function, not int"),
        (_yields, "is a generator"),
        (_many, r"takes \*a: args of a job are parameters with names"),
        (_any, r"takes \*a"),
        (_second, "takes its context as 'job': it must be its first parameter"),
        (_keyword, "takes its context as 'job': it must be its first parameter"),
        (_unknown, "the type of 'a' .* cannot be read"),
        (_odd, "the handler of 'x': Callable is no type that args can hold"),
    ],
)
def test_what_can_be_no_handler_of_a_task_is_refused(handler: Any, said: str) -> None:
    """At its declaration, or, where its annotations say so, when they are first needed."""
    tasks = Tasks()
    with pytest.raises(SettingsError, match=said):
        tasks.task("x")(handler)
        assert tasks.catalog


def test_a_path_has_one_task_and_a_task_has_a_path() -> None:
    tasks = Tasks()
    tasks.task("x")(app.add)
    with pytest.raises(SettingsError, match="there is a task 'x' already"):
        tasks.task("x")(app.add)
    with pytest.raises(SettingsError, match=r'name the task: @tasks.task\("invoices:remind"\)'):
        tasks.task(cast(Any, app.add))
    with pytest.raises(SettingsError, match="a task must be a Task"):
        Tasks(cast(Any, app.add))


# ---- Where it is scheduled -----------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_task_goes_to_the_scheduler_it_is_called_on_or_bound_to() -> None:
    tasks = Tasks()
    add = tasks.task("add", queue="q")(app.add)
    async with ActorHost.open("memory:") as host:
        a, b = host.scheduler("a"), host.scheduler("b")
        with pytest.raises(SettingsError, match="task 'add' is bound to no scheduler"):
            await add.now(1)
        first, second = tasks.bind(a), tasks.bind(b)
        await add.now(1)
        await add.on(a).now(2)
        second()
        second()
        await add.now(3)
        first()
        with pytest.raises(SettingsError, match="is bound to no scheduler"):
            await add.now(4)
        args = [sorted(one.args["a"] for one in (await jobs.list()).records) for jobs in (a, b)]

    assert args == [[2, 3], [1]]


@pytest.mark.anyio
async def test_a_fake_of_a_unit_test_takes_tasks() -> None:
    jobs = FakeScheduler(now=DUE)
    add = jobs.task("add", app.add, queue="q")
    await add.after("5m", 1)
    [record] = await jobs.assert_scheduled("add", count=1)

    assert (record.args, record.scheduled_for) == ({"a": 1}, int(DUE.timestamp() * 1000) + 300_000)
    assert jobs.calls[0].method == "run_after"


@on_simulated_host()
async def test_instants_options_and_what_follows(sim: SimulatedHost) -> None:
    jobs = sim.jobs
    remind, add = jobs.task("remind", app.remind, pool="stripe"), jobs.task("add", app.add, queue="q", priority=3)
    then = [add.job(1), add.options(labels=["x"]).job_after("5m", 2)]
    ids = [
        await remind.after("1h", INVOICE),
        await remind.at(sim.now + 7_200_000, INVOICE),
        await remind.options(pool="bank", retry=Retry(max_retries=1), id="mine", then=then).after(
            timedelta(1), INVOICE
        ),
    ]
    many = await jobs.submit_many([add.job_after(60, 1), add.job_at(sim.now + 60_000, 2)])
    records = [cast(Any, await jobs.get(id)) for id in ids]
    others = [cast(Any, await jobs.get(cast(Any, one).id)) for one in many]

    assert [one.scheduled_for for one in records[:2]] == [sim.now + 3_600_000, sim.now + 7_200_000]
    assert [one.pool for one in records] == ["stripe", "stripe", "bank"]
    assert (records[2].id, records[2].retry.max_retries) == ("mine", 1)
    assert [(one.function_path, one.queue, one.delay_ms) for one in records[2].then] == [
        ("add", "q", 0), ("add", "q", 300_000),
    ]  # fmt: skip
    assert [(one.args, one.priority, one.queue) for one in others] == [({"a": 1}, 3, "q"), ({"a": 2}, 3, "q")]


@on_simulated_host()
async def test_a_schedule_of_a_task_has_its_args_and_options(sim: SimulatedHost) -> None:
    add = sim.jobs.task("add", app.add, queue="q", keep_result="1h", priority=2)
    put = await sim.jobs.schedules.put("daily", add.job(1, 2.5), cron="0 9 * * *", timezone="Europe/Berlin", priority=5)
    same = await sim.jobs.schedules.put(
        "daily", "add", {"a": 1, "b": 2.5}, cron="0 9 * * *", timezone="Europe/Berlin", queue="q", priority=5
    )
    await sim.jobs.schedules.register("app", [("sweep", {"path": add.job(3), "every": "1h"})])
    known = await sim.jobs.schedules.get("app:sweep")

    assert put.revision == same.revision
    assert known is not None and (known.args, known.queue, known.priority) == ({"a": 3}, "q", 2)
    for wrong, said in [
        ({"path": add.job_after(5, 1)}, "has no instant of its own"),
        ({"path": add.job(1), "args": {}}, "give no others beside it"),
        ({"path": add.job(1), "workflow": "w"}, "give no others beside it"),
        ({"path": add.options(id="x").job(1)}, "there is no argument 'id'"),
    ]:
        with pytest.raises(InvalidInputError, match=said):
            await sim.jobs.schedules.put("other", every="1h", **cast(Any, wrong))


@on_simulated_host()
async def test_a_workflow_is_due_at_once_without_a_path(sim: SimulatedHost) -> None:
    id = await sim.jobs.run_after(0, workflow="onboarding", args={"user": 1})
    await sim.sleep(1)

    assert [(one.body["workflow"], one.body["id"]) for one in sim.deliveries] == [("onboarding", id)]


# ---- Any arguments -------------------------------------------------------------------------------

VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary())
SAME: dict[str, Any] = {"first": None, "second": 1, "third": "x"}


def _three(first: Any, second: Any = 1, *, third: Any = "x") -> None:
    CALLS.append((first, second, third))


@given(st.tuples(VALUES) | st.tuples(VALUES, VALUES), st.none() | st.tuples(VALUES))
def test_a_handler_is_called_with_what_its_task_was_called_with(args: tuple[Any, ...], third: Any) -> None:
    kwargs = {} if third is None else {"third": third[0]}
    parameters = Parameters("three", _three)
    CALLS.clear()
    stored = parameters.args_of(args, kwargs)
    parameters.adapter(parameters.expected.read(stored), None)
    _three(*args, **kwargs)

    assert CALLS[0] == CALLS[1]
    assert stored.keys() <= SAME.keys() and len(stored) == len(args) + len(kwargs)


def test_a_job_of_a_task_is_a_plain_job() -> None:
    add = Tasks().task("add", queue="q")(app.add)

    assert add.job(1) == Job(path="add", args={"a": 1}, options={"queue": "q"})
    assert repr(add) == "Task('add')"
