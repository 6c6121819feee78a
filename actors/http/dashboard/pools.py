"""Pools: how full each is, who holds it, and what can be set of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.dashboard import freeing
from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.audit import paused_words
from tocsin.actors.http.dashboard.overview import share
from tocsin.actors.http.dashboard.page import Act, Done, Elsewhere, Field, Page, Question
from tocsin.actors.http.dashboard.words import amount
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.pool_settings import NO_RATE, PoolSettings, pool_settings
from tocsin.dispatch.rate import Rate
from tocsin.errors import InvalidInputError, NotFoundError

SHOWN: Final = 200
"""The page is read anew whenever something changes: so many lines are what people read, and a server can afford."""
HELD: Final = {
    "fired": "a callback is under way",
    "pulled": "a worker has it",
    "accepted": "its receiver has accepted it",
    "unknown": "its callback had no answer in time",
}
"""How a slot is held, by the kind of its lease."""
COOLS: Final = {
    "pool": "a busy receiver that says for how long holds the whole pool",
    "origin": "a busy receiver that says for how long holds all callbacks to it",
}


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of an instance, the longest queue first."""

    pools: Sequence[records.PoolStatus]
    more: bool
    now_ms: int

    def share(self, pool: records.PoolStatus) -> float:
        return share(pool.in_flight, pool.max_concurrency)

    def cools(self, pool: records.PoolStatus) -> bool:
        """Return whether a receiver asked to wait."""
        return pool.cooling_until is not None and pool.cooling_until > self.now_ms

    def kind(self, pool: records.PoolStatus) -> str:
        """Return `full` for a pool whose cap holds back jobs."""
        return "full" if pool.queued and pool.in_flight >= pool.max_concurrency else ""


@dataclass(frozen=True, slots=True)
class OnePool:
    """A pool with its holders, and what the caller may do with it."""

    pool: records.Pool
    may_set: bool
    may_forget: bool
    paused_words: str = ""
    """By whom it was paused, and when."""
    may_free: frozenset[str] = frozenset()
    """Ids of those holders whose slots the caller may free."""
    now_ms: int = 0

    @property
    def share(self) -> float:
        return share(self.pool.in_flight, self.pool.max_concurrency)

    @property
    def full(self) -> bool:
        return bool(self.pool.queued) and self.pool.in_flight >= self.pool.max_concurrency

    @property
    def cools(self) -> int | None:
        """Return until when it cools, if it does."""
        until = self.pool.cooling_until
        return until if until is not None and until > self.now_ms else None

    @property
    def flow_words(self) -> tuple[str, ...]:
        """Return in words what few pools have: how jobs go through it."""
        pool = self.pool
        keys = "" if pool.max_per_key is None else f"at most {amount(pool.max_per_key, 'job')} of a shard key at once"
        said = (
            "" if pool.rate is None else f"{pool.rate} start",
            "" if pool.cool_on_retry_after == "none" else COOLS[pool.cool_on_retry_after],
            "jobs of different shard keys have turns" if pool.fair else "",
            keys,
        )
        return tuple(filter(None, said))

    def how(self, holder: records.Holder) -> str:
        """Return in words how a slot is held."""
        return "its job was cancelled" if holder.orphan else HELD.get(holder.kind, holder.kind)


async def show_all(asked: Asked) -> Pools | Elsewhere:
    if name := (asked.query("name").text("name") or "").strip():
        return Elsewhere(asked.url(f"/pools/{name}"))
    status = await asked.status()
    assert status is not None, "the page needs the leave that this needs"
    pools = sorted(status.pools, key=lambda one: (-one.queued, -one.in_flight, one.name))
    return Pools(pools[:SHOWN], status.more_pools or len(pools) > SHOWN, asked.now_ms)


async def show_one(asked: Asked) -> OnePool:
    asked.query()
    name = asked.names["name"]
    pool = await _known(asked)
    may_forget = not pool.queued and not pool.in_flight and await asked.may("delete_pool", name)
    paused = paused_words(pool.paused_at, pool.paused_by, asked.now_ms) if pool.paused else ""
    held = [one.id for one in pool.holders if one.orphan or one.kind in freeing.KINDS]
    may_free = frozenset([id for id in held if await asked.may("free_slot", id)])
    return OnePool(pool, await asked.may("set_pool", name), may_forget, paused, may_free, asked.now_ms)


async def _known(asked: Asked) -> records.Pool:
    name = asked.names["name"]
    await asked.admit("pool", name)
    pool = await asked.port.reads.pool(name)
    if not pool.known:
        raise NotFoundError(f"there is no pool {name!r}: no job names it, and nobody has set it")
    return pool


# ---- What can be done ----------------------------------------------------------------------------


async def ask_pause(asked: Asked) -> Question:
    pool = await _known(asked)
    return Question(
        title=f"Pause the pool {pool.name}?",
        words=(
            "Nothing of it starts until it is resumed; jobs that run go on to their end.",
            f"{amount(pool.queued, 'job')} would wait, and {amount(pool.in_flight, 'one runs', 'run')} now.",
        ),
        button="Pause",
        back=_url(asked),
    )


async def pause(asked: Asked) -> Done:
    pool = await asked.port.changes.set_pool(asked.names["name"], PoolSettings(paused=True))
    return Done(words=f"The pool {pool.name} is paused: nothing of it starts.", back=_url(asked))


async def ask_resume(asked: Asked) -> Question:
    pool = await _known(asked)
    return Question(
        title=f"Resume the pool {pool.name}?",
        words=(f"{amount(pool.queued, 'job')} waits, and may start.", f"At most {pool.max_concurrency} run at once."),
        button="Resume",
        back=_url(asked),
    )


async def resume(asked: Asked) -> Done:
    pool = await asked.port.changes.set_pool(asked.names["name"], PoolSettings(paused=False))
    return Done(words=f"The pool {pool.name} is resumed.", back=_url(asked))


async def ask_cap(asked: Asked) -> Question:
    pool = await _known(asked)
    return Question(
        title=f"How many jobs of the pool {pool.name} may run at once?",
        words=(f"Now at most {pool.max_concurrency}; {pool.in_flight} run.", "A lower cap lets those that run end."),
        button="Set the cap",
        back=_url(asked),
        fields=(Field(name="cap", label="Cap", value=str(pool.max_concurrency), kind="number", required=True),),
    )


async def set_cap(asked: Asked) -> Done:
    settings = pool_settings({"max_concurrency": _number(asked.field("cap"), "cap")})
    pool = await asked.port.changes.set_pool(asked.names["name"], settings)
    return Done(words=f"At most {pool.max_concurrency} jobs of the pool {pool.name} run at once now.", back=_url(asked))


async def ask_rate(asked: Asked) -> Question:
    pool = await _known(asked)
    rate = pool.rate
    return Question(
        title=f"How many jobs of the pool {pool.name} may start in a time?",
        words=(f"Now {rate}." if rate else "Now as many as its cap lets.", "Leave the number empty for no rate."),
        button="Set the rate",
        back=_url(asked),
        fields=(
            Field(name="limit", label="Starts", value=str(rate.limit) if rate else "", kind="number"),
            Field(name="per", label="In (1s to 1d)", value=str(rate.per) if rate else "1m"),
            Field(name="burst", label="At once after a pause", value=str(rate.burst) if rate else "1", kind="number"),
        ),
    )


async def set_rate(asked: Asked) -> Done:
    limit = asked.form.get("limit", "").strip()  # left empty: no rate
    rate: Rate | str = NO_RATE
    if limit:
        rate = Rate(_number(limit, "limit"), asked.field("per").strip(), _number(asked.field("burst"), "burst"))
    settings = pool_settings({"rate": rate})
    pool = await asked.port.changes.set_pool(asked.names["name"], settings)
    said = f"{pool.rate} of the pool {pool.name} start now." if pool.rate else f"The pool {pool.name} has no rate now."
    return Done(words=said, back=_url(asked))


def _number(given: str, name: str) -> int:
    if not (given.isascii() and given.isdecimal() and len(given) <= 18):
        raise InvalidInputError(f"{name} must be a whole number, not {given[:80]!r}")
    return int(given)


async def ask_warm(asked: Asked) -> Question:
    pool = await _known(asked)
    return Question(
        title=f"Start jobs of the pool {pool.name} again?",
        words=("A receiver was busy and asked to wait. Its answer to the next callback may say so again.",),
        button="End the cooling",
        back=_url(asked),
    )


async def warm(asked: Asked) -> Done:
    pool = await asked.port.changes.set_pool(asked.names["name"], PoolSettings(cooling=False))
    return Done(words=f"The pool {pool.name} starts its jobs again.", back=_url(asked))


async def ask_forget(asked: Asked) -> Question:
    pool = await _known(asked)
    return Question(
        title=f"Forget the pool {pool.name}?",
        words=("No job names it. Its cap and its pause are forgotten; a job that names it makes it anew.",),
        button="Forget it",
        back=_url(asked),
        grave=True,
    )


async def forget(asked: Asked) -> Done:
    name = asked.names["name"]
    forgotten = await asked.port.changes.delete_pool(name)
    return Done(words=f"The pool {name} is forgotten.", back=asked.url("/pools"), changed=forgotten)


def _url(asked: Asked) -> str:
    return asked.url(f"/pools/{asked.names['name']}")


PLACES: Final = (
    Page(path="/pools", action="status", name="pools", title="Pools", show=show_all),
    Page(
        path="/pools/{name}", action="pool", resource="name", name="pools", title="Pool", show=show_one,
        template="pool.html",
    ),
    *(
        Act(path=f"/pools/{{name}}/{verb}", action=action, resource="name", name="pools", ask=ask, do=do)
        for verb, action, ask, do in (
            ("pause", "set_pool", ask_pause, pause),
            ("resume", "set_pool", ask_resume, resume),
            ("cap", "set_pool", ask_cap, set_cap),
            ("rate", "set_pool", ask_rate, set_rate),
            ("warm", "set_pool", ask_warm, warm),
            ("forget", "delete_pool", ask_forget, forget),
        )
    ),
    freeing.act("/pools/{name}/holders/{id}/free", "pools", _url),
)  # fmt: skip
