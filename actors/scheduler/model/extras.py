"""Make `JobExtras` of the options that few jobs have, each checked at the call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tocsin.actors.scheduler.model.flow_rows import JobExtras
from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.model.rows import JobRow
from tocsin.dispatch.instants import show
from tocsin.dispatch.origin import ORIGIN_NAME, RESERVED, URL
from tocsin.dispatch.rate import Rate, Stored
from tocsin.dispatch.url_list import check_job_url
from tocsin.dispatch.words import word
from tocsin.errors import InvalidInputError

GROUP_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def extras_of(given: Mapping[str, Any]) -> JobExtras | None:
    """Return what stands in `extras` of a job's row; None if none of these options is given, as for most."""
    found = {name: check(given) for name, check in EXTRAS.items() if name in given}
    if "url" in found:
        found["origin"] = URL
    return JobExtras(**found) if found else None


def any_extras(jobs: Iterable[JobRow]) -> JobExtras | None:
    """Return extras that say nothing, if one of these jobs, which another row holds, has some: an older tocsin that
    read that row would leave them out without a word."""
    return JobExtras() if any(job.extras is not None for job in jobs) else None


def _origin(given: Mapping[str, Any]) -> str:
    value = given["origin"]
    if given.get("url") is not None:
        raise InvalidInputError(f"give one of {word('url')} and {word('origin')}: a job goes to one place")
    if not isinstance(value, str) or not ORIGIN_NAME.fullmatch(value) or value in RESERVED:
        raise InvalidInputError(
            f"{word('origin')} must be the name of one of the host's origins, at most 64 of [A-Za-z0-9_.-], not "
            f"{show(value)}"
        )
    if given.get("queue") is not None:
        raise InvalidInputError(f"give one of {word('origin')} and queue: jobs of a queue are not called back")
    return value


def _rate(given: Mapping[str, Any]) -> Stored:
    value = given["rate"]
    if not isinstance(value, Rate):
        raise InvalidInputError(f"{word('rate')} must be a Rate, not {show(value)}")
    if "pool" not in given:
        raise InvalidInputError(f"{word('rate')} is the rate of a pool: give pool as well")
    return value.stored


def _url(given: Mapping[str, Any]) -> str:
    if given.get("queue") is not None:
        raise InvalidInputError(f"give one of {word('url')} and queue: jobs of a queue are not called back")
    return check_job_url(given["url"], word("url"))


def _group(given: Mapping[str, Any]) -> str:
    value = given["group"]
    if isinstance(value, NewGroup):
        return value.name
    if not isinstance(value, str) or not GROUP_NAME.fullmatch(value):
        raise InvalidInputError(f"{word('group')} must be 1 to 128 characters of [A-Za-z0-9_.:-], not {show(value)}")
    return str(value)


def new_group_in(given: Mapping[str, Any]) -> NewGroup | None:
    """Return the group that a job defines, if it does."""
    group = given.get("group")
    return group if isinstance(group, NewGroup) else None


EXTRAS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "origin": _origin,
    "rate": _rate,
    "url": _url,
    "group": _group,
}
"""The check of each option, by its name; it returns the member of that name."""
