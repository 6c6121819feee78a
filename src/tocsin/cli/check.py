"""`tocsin check`: check a store; name each fault, what it means and who repairs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from tocsin.cli.check_report import Totals, print_checked, print_set_aside
from tocsin.cli.failure import Refused, StoreUnusable, WrongSettings
from tocsin.cli.output import emit, instant, now_ms, plural, put, size
from tocsin.cli.stores import DAMAGED, store_command
from tocsin.cli.words import printable, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tocsin.actors.scheduler.integrity.check import Checked
    from tocsin.storage.api import StoreProvider
    from tocsin.storage.snapshot import StoreLook

EXAMPLES: Final = 10


@click.command()
@click.option("--instance", envvar="TOCSIN_INSTANCE", metavar="NAME", help="Only this scheduler (default: all).")
@click.option("--repair", is_flag=True, help="Repair what can be; copies the store first. Stop the server before.")
@click.option("--discard", is_flag=True, help="Delete what was set aside under bad/; copies the store first.")
@click.option("--examples", type=click.IntRange(0, 1_000), default=EXAMPLES, show_default=True, help="Of each fault.")
@store_command
def check(store: str, /, instance: str | None, repair: bool, discard: bool, examples: int, as_json: bool) -> None:
    """Check every row of a store, also while a server uses it.

    Reads all of it: SQLite's own structures, then each scheduler from one
    snapshot, in memory for its leases, lines and pools. It takes no lock and
    writes nothing; while it reads, the server's -wal file grows.

    Exit code 0: sound. 1: faults are left. 4: the store cannot be used.
    """
    import asyncio

    if repair and discard:
        raise WrongSettings("--repair and --discard are two steps: look at what was set aside before you delete it")
    report = _Report(as_json, examples)
    asyncio.run(_discard(store, instance, report) if discard else _check(store, instance, repair, report))


class _Report:
    """Prints progress and results while the check runs."""

    def __init__(self, as_json: bool, examples: int) -> None:
        self.as_json, self.examples = as_json, examples

    def say(self, words: str) -> None:
        if not self.as_json:
            say(words)

    def checked(self, one: Checked) -> None:
        if not self.as_json:
            print_checked(one, self.examples)
            return
        for fault in one.findings.faults:
            emit(
                {
                    "type": "fault",
                    "instance": one.name,
                    "code": fault.code,
                    "about": fault.about,
                    "message": fault.message,
                    "means": fault.kind.means,
                    "repair": fault.kind.repair,
                    "forPeople": fault.kind.for_people,
                }
            )
        for key in one.findings.aside:
            emit({"type": "setAside", "instance": one.name, "key": key})

    def summary(self, **members: Any) -> None:
        if self.as_json:
            emit({"type": "summary", **members})


async def _check(store: str, instance: str | None, repair: bool, report: _Report) -> None:
    from tocsin.storage.urls import open_look

    look = open_look(store)
    if repair:
        _check_free(store)
    _check_engine(look, report)
    before, marked = await _look(look, instance, report)
    if not repair or not before.faults:
        _conclude(before, report)
        return
    mendable = [one.name for one in marked if one.findings.total > one.findings.for_people]
    copy = await _repair(store, mendable, report) if mendable else None
    report.say("checking again")
    after, _ = await _look(open_look(store), instance, report)
    _conclude(after, report, repaired=before, copy=copy)


async def _discard(store: str, instance: str | None, report: _Report) -> None:
    from tocsin.actors.scheduler.integrity.check import discard
    from tocsin.storage.urls import open_look

    look = open_look(store)
    _check_free(store)
    _check_engine(look, report)
    before, marked = await _look(look, instance, report)
    names = [one.name for one in marked if one.findings.aside_count]
    gone = 0

    async def delete(provider: StoreProvider, name: str) -> None:
        nonlocal gone
        gone += await discard(provider, name)

    if not names:
        _conclude(before, report)
        return
    copy = await _change(store, names, delete, "before-discard", report)
    report.say(f"deleted {plural(gone, 'row')} under bad/; checking again")
    after, _ = await _look(open_look(store), instance, report)
    _conclude(after, report, discarded=gone, copy=copy)


def _check_free(store: str) -> None:
    """Refuse a store that is in use, even if there is nothing to repair. The lock is let
    go again: the repair takes it with the store."""
    from tocsin.errors import StoreLocked
    from tocsin.storage.sqlite.lock import LockFile
    from tocsin.storage.urls import file_beside, is_file

    if not is_file(store):
        raise WrongSettings(
            "--repair and --discard are for SQLite files: stop all hosts, `tocsin move` the store to a new file, "
            "repair that one, and move it back to an empty schema"
        )
    path = file_beside(store, ".lock")
    if not path.exists():
        return  # nobody ever had it, and a look makes no file
    lock = LockFile(path)
    try:
        lock.take()
    except StoreLocked as error:
        raise StoreUnusable(f"{error}\nWithout --repair it is checked while it is in use.") from None
    lock.let_go()


def _check_engine(look: StoreLook, report: _Report) -> None:
    from tocsin.actors.scheduler.integrity.check import integrity

    faults = integrity(look)
    if faults:
        for fault in faults:
            if report.as_json:
                emit({"type": "damage", "message": fault})
            else:
                put(printable(fault))
        raise StoreUnusable(
            f"the store {look.place} is damaged: its engine finds faults in its own structures\n{DAMAGED}"
        )


async def _look(look: StoreLook, instance: str | None, report: _Report) -> tuple[Totals, list[Checked]]:
    """Return the totals, and the schedulers with faults or with rows that were set aside."""
    from tocsin.actors.scheduler.integrity.check import check_store

    totals = Totals()
    marked: list[Checked] = []
    async for one in check_store(look, instance):
        totals.add(one)
        if one.findings.total or one.findings.aside_count:
            report.checked(one)
            marked.append(one)
    if instance is not None and not totals.schedulers:
        raise Refused(f"there is no scheduler {instance!r} in {look.place}")
    return totals, marked


async def _repair(store: str, names: list[str], report: _Report) -> str:
    from tocsin.actors.scheduler.integrity.check import repair

    return await _change(store, names, repair, "before-repair", report)


async def _change(
    store: str,
    names: Sequence[str],
    change: Callable[[StoreProvider, str], Awaitable[None]],
    ending: str,
    report: _Report,
) -> str:
    """Copy the store, then change each scheduler, under the store's lock; return the copy's name."""
    import asyncio

    from tocsin.storage.urls import back_up, file_beside, open_provider

    provider = open_provider(store)
    await provider.start()
    try:
        moment = instant(now_ms()).translate(str.maketrans("", "", "-:"))
        copy = file_beside(store, f".{ending}-{moment}")
        written = await asyncio.to_thread(back_up, store, copy)
        report.say(f"copied to {printable(copy)}: {size(written)}, checked")
        for name in names:
            await change(provider, name)
    finally:
        await provider.stop()
    return str(copy)


def _conclude(
    totals: Totals,
    report: _Report,
    *,
    repaired: Totals | None = None,
    discarded: int | None = None,
    copy: str | None = None,
) -> None:
    # By kind: a row that could not be read is a lost job once it was set aside.
    mended = (repaired.codes - totals.codes).total() if repaired is not None else None
    report.summary(
        sound=not totals.faults,
        faults=totals.faults,
        byCode=dict(totals.codes),
        setAside=totals.aside,
        schedulers=totals.schedulers,
        jobs=totals.jobs,
        rows=totals.rows,
        **({"mended": mended, "backup": copy} if repaired is not None else {}),
        **({"discarded": discarded, "backup": copy} if discarded is not None else {}),
    )
    if not report.as_json:
        if mended is not None:
            say(f"repaired {mended:,} of {repaired.faults if repaired else 0:,} faults")
        print_set_aside(totals)
    if totals.faults:
        raise Refused(totals.words(repaired=repaired is not None))
    report.say(totals.words(repaired=repaired is not None))
