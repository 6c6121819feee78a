"""Bulk retries of dead letters: how many there would be, at which rate, how far one has come, and its stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.deeds import chosen
from tocsin.actors.http.dashboard.overview import share
from tocsin.actors.http.dashboard.page import Act, Done, Field, Page, Question
from tocsin.actors.http.dashboard.words import amount
from tocsin.actors.scheduler.model.records import Redrive
from tocsin.errors import InvalidInputError, NotFoundError

RATE: Final = 50
FILTERS: Final = ("path", "reason", "pool")


@dataclass(frozen=True, slots=True)
class OneRedrive:
    """A bulk retry, and whether the caller may stop it."""

    redrive: Redrive
    may_stop: bool

    @property
    def share(self) -> float:
        return share(self.redrive.retried, self.redrive.matched)

    @property
    def state(self) -> str:
        if self.redrive.running:
            return "waiting" if self.redrive.waits_for else "running"
        return "stopped" if self.redrive.stopped else "done"


async def show(asked: Asked) -> OneRedrive:
    asked.query()
    id = asked.names["id"]
    redrive = await _known(asked)
    return OneRedrive(redrive, redrive.running and await asked.may("redrive_stop", id))


async def _known(asked: Asked) -> Redrive:
    id = asked.names["id"]
    await asked.admit("redrive", id)
    redrive = await asked.port.reads.redrive(id)
    if redrive is None:
        raise NotFoundError(f"there is no bulk retry {id!r}: it ended more than a day ago, or never was")
    return redrive


# ---- All that fit --------------------------------------------------------------------------------


def filters_of(asked: Asked) -> Mapping[str, str]:
    """Return the filters of a bulk action, from the address or from the form that it asked with."""
    given: Mapping[str, str] = asked.form
    if not given:
        query = asked.query(*FILTERS)
        given = {name: query.text(name) or "" for name in FILTERS}
    return {name: given[name] for name in FILTERS if given.get(name)}


def words_of(filters: Mapping[str, str]) -> str:
    """Return in words which dead letters fit."""
    return chosen(filters) or "of this instance"


def arguments_of(filters: Mapping[str, str]) -> dict[str, Any]:
    """Return the filters as the port takes them; without any, all are meant, and that is said."""
    return {**{name: filters.get(name) for name in FILTERS}, "since": None, "ids": None, "all": not filters}


async def ask_all(asked: Asked) -> Question:
    filters = filters_of(asked)
    matched = (await _redrive(asked, filters, RATE, dry_run=True)).matched
    return Question(
        title=f"Retry all dead letters {words_of(filters)}?",
        words=(
            f"A dry run matches {amount(matched, 'dead letter')}.",
            "It can be stopped on the way.",
        ),
        button=f"Retry {amount(matched, 'job')}",
        back=asked.url("/dead/letters", **filters),
        fields=(
            Field(
                name="rate", label="Jobs a second", value=str(RATE), kind="number", required=True, paced=matched,
                hint="So many are due each second, so that the receiver is not run over.",
            ),
        ),
        kept=filters,
    )  # fmt: skip


async def retry_all(asked: Asked) -> Done:
    given = asked.field("rate")
    if not (given.isascii() and given.isdecimal() and len(given) <= 9):
        raise InvalidInputError(f"rate must be a whole number of jobs a second, not {given[:80]!r}")
    filters = filters_of(asked)
    redrive = await _redrive(asked, filters, int(given), dry_run=False)
    if not redrive.redrive_id:
        return Done(words="No dead letter fits any more.", back=asked.url("/dead"), changed=False)
    words = f"{amount(redrive.matched, 'dead letter')} {words_of(filters)} will be retried, {int(given):,} a second."
    return Done(words=words, back=asked.url(f"/dead/redrives/{redrive.redrive_id}"))


async def _redrive(asked: Asked, filters: Mapping[str, str], rate: int, *, dry_run: bool) -> Redrive:
    return await asked.port.changes.dead_retry_all(**arguments_of(filters), rate_per_second=rate, dry_run=dry_run)


# ---- The stop ------------------------------------------------------------------------------------


async def ask_stop(asked: Asked) -> Question:
    redrive = await _known(asked)
    left = redrive.matched - redrive.retried
    return Question(
        title="Stop this bulk retry?",
        words=(
            f"{amount(redrive.retried, 'job is', 'jobs are')} retried, and stay so.",
            f"{amount(left, 'dead letter stays', 'dead letters stay')} dead, and can be retried later.",
        ),
        button="Stop it",
        back=_url(asked),
    )


async def stop(asked: Asked) -> Done:
    stopped = await asked.port.changes.redrive_stop(asked.names["id"])
    words = "The bulk retry is stopped." if stopped else "The bulk retry had ended."
    return Done(words=words, back=_url(asked), changed=stopped)


def _url(asked: Asked) -> str:
    return asked.url(f"/dead/redrives/{asked.names['id']}")


PLACES: Final = (
    Page(
        path="/dead/redrives/{id}", action="redrive", resource="id", name="dead", title="Bulk retry", show=show,
        template="redrive.html",
    ),
    Act(path="/dead/redrives/{id}/stop", action="redrive_stop", resource="id", name="dead", ask=ask_stop, do=stop),
    Act(path="/dead/retry-all", action="dead_retry_all", name="dead", ask=ask_all, do=retry_all),
)  # fmt: skip
