"""Options that put calls off: what they need, and what goes with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.dispatch.instants import show
from tocsin.dispatch.words import word
from tocsin.errors import InvalidInputError

PUT_OFF_MS: Final = (1, 30 * 86_400_000)
"""Of a debounce, of its longest wait, and of the period of a throttle."""
ON_THROTTLE: Final = ("refuse", "merge")
TIMING: Final = frozenset({"debounce_ms", "max_wait_ms", "throttle_ms", "on_throttle"})
NO_ID: Final = "it has no id of yours"


def timed(new: NewJob, given: Mapping[str, Any]) -> NewJob:
    """Return the job with what was given of TIMING. InvalidInputError names what does not go together."""
    debounce, most, throttle = (_ms(given, name) for name in ("debounce_ms", "max_wait_ms", "throttle_ms"))
    conflict, on_throttle = given.get("on_conflict"), given.get("on_throttle", "refuse")
    if debounce is None and most is not None:
        raise InvalidInputError(f"{word('max_wait_ms')} bounds a debounce: give {word('debounce_ms')} as well")
    if throttle is None and "on_throttle" in given:
        raise InvalidInputError(f"{word('on_throttle')} says what a throttle does: give {word('throttle_ms')} as well")
    if on_throttle not in ON_THROTTLE:
        raise InvalidInputError(
            f"{word('on_throttle')} must be one of {', '.join(ON_THROTTLE)}, not {show(on_throttle)}"
        )
    if debounce is not None and throttle is not None:
        raise InvalidInputError(f"{word('debounce_ms')} and {word('throttle_ms')} say the contrary: give one of them")
    asked = word("throttle_ms" if debounce is None else "debounce_ms")
    if not new.chosen:
        raise InvalidInputError(f"{asked} is about the calls of one id: give id as well")
    if debounce is not None or on_throttle == "merge":
        what = asked if debounce is not None else f"{word('on_throttle')} merge"
        if given.get("group") is not None:
            raise InvalidInputError(f"group counts each job that is accepted: give it without {what}")
        if conflict not in (None, "replace"):
            raise InvalidInputError(
                f"{what} replaces the job of its id: {word('on_conflict')} must be replace, or left out, not {conflict}"
            )
        if "group" in given:
            raise InvalidInputError(f"group cannot be given with {asked}: a call that is put off may never run")
        new = replace(new, on_conflict="replace")
    if debounce is not None:
        return replace(new, debounce=(debounce, most))
    return new if throttle is None else replace(new, throttle=(throttle, on_throttle == "merge"))


def _ms(given: Mapping[str, Any], name: str) -> int | None:
    value: object = given.get(name)
    if value is None:
        return None
    least, most = PUT_OFF_MS
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(f"{word(name)} must be an integer, not {show(value)}")
    if not least <= value <= most:
        raise InvalidInputError(f"{word(name)} must be {least}..{most}, not {show(value)}")
    return value
