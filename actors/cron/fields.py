"""The fields of a cron expression: what each may hold, read strictly, written back as plain lists for croniter.

The rules are the contract's, section 6; a refusal names the field, the text and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tocsin.errors import InvalidCronError

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

_ITEM: Final = re.compile(r"(?P<first>\*|\?|\w+)(?:-(?P<last>\w+))?(?:/(?P<step>\w+))?", re.ASCII)
_OF_MONTH: Final = re.compile(r"([0-9]{1,2})w", re.ASCII | re.IGNORECASE)
_OF_WEEK: Final = re.compile(r"([0-7]|[a-z]{3})(?:l|#([0-9]+))", re.ASCII | re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9]{1,4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kind:
    """The definition of a field: its name in messages, its least and largest value, its words."""

    name: str
    least: int
    most: int
    words: Mapping[str, int]

    @property
    def size(self) -> int:
        return self.most - self.least + 1


SECOND: Final = Kind("second", 0, 59, {})
MINUTE: Final = Kind("minute", 0, 59, {})
HOUR: Final = Kind("hour", 0, 23, {})
DAY: Final = Kind("day of month", 1, 31, {})
MONTH: Final = Kind("month", 1, 12, {name: n for n, name in enumerate(MONTHS, 1)})
WEEKDAY: Final = Kind("day of week", 0, 7, {name: n for n, name in enumerate(DAYS)})


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `choices` are what croniter reads, any of which may match: `*`, a list of numbers, or one of `l`,
    `15w`, `l5`, `1#2`. There are two only for a list with `L` in it: croniter takes 31 members for every day."""

    text: str
    choices: tuple[str, ...]
    starred: bool
    """True if it starts with `*` (or `?`, which is the same): the Vixie rule for days, and what runs in real time."""


def read(text: str, kind: Kind) -> Field:
    """Parse a field; InvalidCronError says what is wrong with it."""
    special = _special(text, kind)
    if special is not None:
        return Field(text, (special,), starred=False)
    values: set[int] = set()
    last_day = False
    for item in text.split(","):
        if kind is DAY and item in ("l", "L"):
            last_day = True
        else:
            values.update(_values(item, text, kind))
    if kind is WEEKDAY:
        values = {value % 7 for value in values}
    if len(values) == (7 if kind is WEEKDAY else kind.size):
        choices = ["*"]
    else:
        choices = [",".join(map(str, sorted(values)))] if values else []
        choices += ["l"] if last_day else []
    return Field(text, tuple(choices), text.startswith(("*", "?")))


# ---- What only the day fields have ---------------------------------------------------------------


def _special(text: str, kind: Kind) -> str | None:
    if kind is DAY and (match := _OF_MONTH.fullmatch(text)):
        return f"{_number(match[1], text, kind)}w"
    if kind is WEEKDAY and (match := _OF_WEEK.fullmatch(text)):
        day = _value(match[1], text, kind) % 7
        if match[2] is None:
            return f"l{day}"
        if match[2] not in ("1", "2", "3", "4", "5"):
            raise InvalidCronError(f"{_which(text, kind)}: no month has a {match[2]}th of them, write 1 to 5 after #")
        return f"{day}#{match[2]}"
    return None


# ---- Items ---------------------------------------------------------------------------------------


def _values(item: str, text: str, kind: Kind) -> range:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise InvalidCronError(f"{_which(text, kind)}: {_shape(item, kind)}")
    first, last, step = match["first"], match["last"], match["step"]
    whole = first in ("*", "?")
    if whole and last is not None:
        raise InvalidCronError(f"{_which(text, kind)}: {item!r} is no range, * is all of it already")
    stride = 1 if step is None else _step(step, text, kind)
    if whole:
        return range(kind.least, kind.most + 1, stride)
    start = _value(first, text, kind)
    if last is not None:
        return range(start, _end(start, last, stride, text, kind) + 1, stride)
    if step is None:
        return range(start, start + 1)
    if kind is WEEKDAY:
        raise InvalidCronError(f"{_which(text, kind)}: {item!r} means different days to different crons, list the days")
    return range(start, kind.most + 1, stride)


def _end(start: int, last: str, stride: int, text: str, kind: Kind) -> int:
    end = _value(last, text, kind)
    if kind is WEEKDAY and last.lower() == "sun" and start:
        end = 7
    if end >= start:
        return end
    if stride == 1:
        instead = f"write its two pieces: {_span(start, kind.most)},{_span(kind.least, end)}"
    else:
        size = 7 if kind is WEEKDAY else kind.size
        around = (kind.least + (value - kind.least) % size for value in range(start, end + size + 1, stride))
        instead = f"list its values: {','.join(map(str, around))}"
    raise InvalidCronError(f"{_which(text, kind)}: from {start} to {end} descends, {instead}")


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _step(step: str, text: str, kind: Kind) -> int:
    if not _NUMBER.fullmatch(step) or int(step) == 0:
        raise InvalidCronError(f"{_which(text, kind)}: a step is a whole number from 1, not {_cut(step)}")
    if int(step) > kind.most:
        raise InvalidCronError(
            f"{_which(text, kind)}: a step of {step} is above the field's largest value, {kind.most}; steps begin anew "
            "with each round of the field, so for a longer period use everyMs instead of cron"
        )
    return int(step)


def _value(word: str, text: str, kind: Kind) -> int:
    if word.lower() in kind.words:
        return kind.words[word.lower()]
    if not _NUMBER.fullmatch(word):
        raise InvalidCronError(f"{_which(text, kind)}: {_shape(word, kind)}")
    return _number(word, text, kind)


def _number(word: str, text: str, kind: Kind) -> int:
    if not kind.least <= int(word) <= kind.most:
        raise InvalidCronError(f"{_which(text, kind)}: {word} is not {kind.least}..{kind.most}")
    return int(word)


def _shape(item: str, kind: Kind) -> str:
    """Say why this may not stand there, and what may."""
    lowered = item.lower()
    if lowered in ("h", "r", "~"):
        return f"{item!r} would be a random value, choose one: {kind.least}..{kind.most}"
    if not item:
        return "a member of its list is empty, remove the comma"
    if kind is DAY and lowered in ("lw", "wl"):
        return "the last weekday (Monday to Friday) of the month is written 31W"
    if kind is WEEKDAY and lowered == "l":
        return "which of them? 5L is the last Friday of the month, 6 is Saturday"
    if (kind is DAY and _OF_MONTH.fullmatch(item)) or (kind is WEEKDAY and _OF_WEEK.fullmatch(item)):
        return f"{item!r} has a field to itself, make a schedule of its own for it"
    if lowered[:3] in kind.words and item.isalpha():
        return f"{_cut(item)} is written {lowered[:3]!r}"
    words = f" or {'/'.join(kind.words)}" if kind.words else ""
    return (
        f"{_cut(item)} is no value, range or step: values are {kind.least}..{kind.most}{words}, "
        f"ranges like {kind.least}-{kind.least + 3}, steps like */2"
    )


def _which(text: str, kind: Kind) -> str:
    return f"{kind.name} field {_cut(text)}"


def _cut(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
