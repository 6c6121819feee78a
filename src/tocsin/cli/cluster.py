"""`tocsin cluster`: the hosts of a store that several share, read from the store itself: no host needs to be well."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tocsin.cli.failure import Refused, StoreUnusable, WrongSettings
from tocsin.cli.output import Column, emit, key_values, plural, print_rows, put, span
from tocsin.cli.stores import store_command
from tocsin.cli.words import printable, say

if TYPE_CHECKING:
    from tocsin.storage.ownership.engine import SharedEngine
    from tocsin.storage.shared import HostFacts, StoreFacts

T = TypeVar("T")
LAST_SLOT: Final = 4095
SHORT: Final = 8
"""Characters of a host's id that are shown, and enough to name it."""
HOSTS: Final = (
    Column("HOST", SHORT),
    Column("NAME", 24, whole=True),
    Column("STATE", 8),
    Column("SLOTS", 5, right=True),
    Column("LEASE", 6, right=True),
    Column("ADDRESS", whole=True),
)


@click.group()
def cluster() -> None:
    """The hosts of a shared store (PostgreSQL), and its slots.

    These read and change the store itself, also while no host answers.
    """


@cluster.command("status")
@click.option("--instance", metavar="NAME", envvar="TOCSIN_INSTANCE", help="Say where this one is, too.")
@store_command
def status(store: str, /, instance: str | None, as_json: bool) -> None:
    """Show the hosts, what each owns, and what waits.

    Exit code 1 if slots of the store have no living owner: nothing of them
    starts.
    """
    facts, place = _with(store, lambda engine: _look(engine, instance))
    if as_json:
        import msgspec

        shown = {name: value for name, value in msgspec.to_builtins(facts).items() if name not in ("host", "beat_ms")}
        emit(shown if place is None else {**shown, "instance": place})
    else:
        _print(facts, place)
    if facts.unowned:
        raise Refused(f"{plural(facts.unowned, 'slot')} of the store have no living owner: nothing of them starts")


@cluster.command("drain")
@click.argument("host")
@click.option("--force", is_flag=True, help="Also the only host that is up: then nothing of the store starts.")
@store_command
def drain(store: str, /, host: str, force: bool, as_json: bool) -> None:
    """Have a host let go of all its slots.

    HOST is its id, the beginning of that, or its name. It goes on to answer
    requests, lets its callbacks end, and owns nothing until it is restarted.
    The only host that is up is refused, with exit code 1.
    """

    async def run(engine: SharedEngine) -> HostFacts:
        facts, _ = await _look(engine, None)
        one = _named(facts.hosts, host)
        if not force and all(each.host == one.host or each.state != "up" for each in facts.hosts):
            raise Refused(
                f"{printable(one.name)} is the only host that is up: nothing of the store would start until a host is "
                "started, or a drained one restarted. --force drains it all the same"
            )
        if not await engine.drain(one.host):
            raise Refused(f"host {one.name} is not up any more")
        await engine.hint([])
        return one

    one = _with(store, run)
    if as_json:
        emit({"host": one.host, "name": one.name, "slots": one.slots})
    else:
        let_go = f"{printable(one.name)} was told to let go of its {plural(one.slots, 'slot')}"
        say(f"tocsin: {let_go}; it owns none until it is restarted")


@cluster.command("release")
@click.option("--slot", type=click.IntRange(0, LAST_SLOT), multiple=True, help="Once or more.")
@store_command
def release(store: str, /, slot: Sequence[int], as_json: bool) -> None:
    """Take slots away from their owner, for one that is stuck.

    Safe at any moment: what the owner still writes is refused, and it, or
    another host, takes the slots anew. Exit code 1 if none had an owner.
    """
    if not slot:
        raise click.UsageError("say which slots: --slot 17 --slot 18")

    async def run(engine: SharedEngine) -> list[int]:
        from tocsin.storage.ownership.facts import release_from_all

        released = await release_from_all(engine, slot)
        await engine.hint([])
        return released

    released = _with(store, run)
    if as_json:
        emit({"released": released})
    elif released:
        say(f"tocsin: released {', '.join(map(str, released))}")
    if not released:
        raise Refused("none of these slots had an owner")


def _with(store: str, work: Callable[[SharedEngine], Awaitable[T]]) -> T:
    """Do something with the engine of a shared store, without becoming one of its hosts."""
    import asyncio

    from tocsin.storage.urls import is_there, place_of

    async def run() -> T:
        engine = _engine(store)
        if not await is_there(store):  # to open one makes it
            raise StoreUnusable(f"there is no store at {place_of(store)}: check the address")
        await engine.open()
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


def _engine(store: str) -> SharedEngine:
    from tocsin.storage.shared import shared_of
    from tocsin.storage.urls import open_provider

    engine: Any = getattr(shared_of(open_provider(store)), "engine", None)
    if engine is None:
        raise WrongSettings("this store has one host alone: the hosts of a postgresql://… store make a cluster")
    shared: SharedEngine = engine
    return shared


async def _look(engine: SharedEngine, instance: str | None) -> tuple[StoreFacts, dict[str, Any] | None]:
    from tocsin.actors.scheduler.model.names import actor_of
    from tocsin.actors.scheduler.model.validation import instance_name
    from tocsin.storage.ownership.engine import slot_of
    from tocsin.storage.ownership.facts import facts_of

    facts = await facts_of(engine, "", 0)
    if instance is None:
        return facts, None
    slot = slot_of(str(actor_of(instance_name(instance))))
    row = next(one for one in await engine.slots() if one.slot == slot)
    return facts, {"name": instance, "slot": slot, "owner": row.owner, "epoch": row.epoch, "seq": row.seq}


def _named(hosts: Sequence[HostFacts], given: str) -> HostFacts:
    """Find a host by its id, the beginning of that, or its name."""
    up = [one for one in hosts if one.state == "up"]
    found = [one for one in up if one.name == given or one.host.startswith(given.lower())] if given else []
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{one.host[:SHORT]} ({one.name})" for one in found or up) or "none"
    raise Refused(f"{'several hosts are' if found else 'no host that is up is'} called {given!r}: there are {names}")


def _address(url: str | None) -> str:
    """Show where a host is reached, without the computer that a loopback address is of."""
    return "(by mail only)" if url is None else printable("/".join(url.split("/")[:3]))


def _print(facts: StoreFacts, place: dict[str, Any] | None) -> None:
    rows = [
        (
            one.host[:SHORT], printable(one.name), one.state, f"{one.slots:,}",
            span(one.lease_left_ms) if one.lease_left_ms > 0 else "over", _address(one.url),
        )
        for one in sorted(facts.hosts, key=lambda one: one.name)
    ]  # fmt: skip
    if rows:
        print_rows(HOSTS, rows)
        put()
    key_values(
        ("hosts", None if rows else "none"),
        ("without owner", f"{facts.unowned:,} slots"),
        ("mail", f"{facts.mail:,}" + (f", the first for {span(facts.oldest_mail_ms)}" if facts.mail else "")),
    )
    if place is not None:
        owner = "none" if place["owner"] is None else place["owner"][:SHORT]
        key_values(("instance", f"{place['name']}: slot {place['slot']}, owner {owner}"))
