"""Cancel all live jobs that fit the filters of the list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.deeds import chosen
from tocsin.actors.http.dashboard.page import Act, Done, Question
from tocsin.actors.http.dashboard.undo import undo_path
from tocsin.actors.http.dashboard.words import amount
from tocsin.actors.scheduler.model.records import Matched

FILTERS: Final = ("path", "pool", "label")
"""The filters that a bulk cancel takes. A list can be narrowed by others, too, but what is listed there is not all of
these."""


def _filters(asked: Asked) -> Mapping[str, str]:
    """Return the filters, from the address or from the form that it asked with."""
    given: Mapping[str, str] = asked.form
    if not given:
        query = asked.query(*FILTERS)
        given = {name: query.text(name) or "" for name in FILTERS}
    return {name: given[name] for name in FILTERS if given.get(name)}


async def _cancel(asked: Asked, filters: Mapping[str, str], *, dry_run: bool) -> Matched:
    named = {name: filters.get(name) for name in FILTERS}
    return await asked.port.changes.cancel_all(**named, all=False, dry_run=dry_run)


async def ask(asked: Asked) -> Question:
    filters = _filters(asked)
    matched = (await _cancel(asked, filters, dry_run=True)).matched
    return Question(
        title=f"Cancel all jobs {chosen(filters)}?",
        words=(
            f"A dry run matches {amount(matched, 'job')}: those that wait, come later or run.",
            "They are removed, and so are the jobs that would follow them; for ten minutes this can be undone.",
            "Of those that run the attempt goes on, but nothing comes of it, and an undo does not bring them back.",
        ),
        button=f"Cancel {amount(matched, 'job')}",
        back=asked.url("/jobs", **filters),
        grave=True,
        kept=filters,
    )


async def do(asked: Asked) -> Done:
    filters = _filters(asked)
    found = await _cancel(asked, filters, dry_run=False)
    return Done(
        words=f"{amount(found.cancelled, 'job')} {chosen(filters)} cancelled.",
        back=asked.url("/jobs", **filters),
        undo=undo_path(found.action_id, found.undo_until),
        changed=found.cancelled > 0,
    )


# Not below `/jobs`: a job may have any id.
PLACES: Final = (Act(path="/cancel-jobs", action="cancel_all", name="jobs", ask=ask, do=do),)
