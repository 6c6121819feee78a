"""Translate argument names for whoever gave them: Python says `max_concurrency`, a request `maxConcurrency`, the
command line `--max-concurrency`, and each reads its own word in an error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import cache
from typing import Final

_SAID: Final[Mapping[str, tuple[str, str]]] = {
    "function_path": ("path", "functionPath"),
    "every": ("every", "everyMs"),
    "every_ms": ("every (in ms)", "everyMs"),
    "grace_ms": ("grace (in ms)", "graceMs"),
    "jitter_ms": ("jitter (in ms)", "jitterMs"),
    "expires_after_ms": ("expires_after (in ms)", "expiresAfterMs"),
    "keep_result_ms": ("keep_result (in ms)", "keepResultMs"),
    "wait_ms": ("wait (in ms)", "waitMs"),
    "delay_ms": ("delay (in ms)", "delayMs"),
    "debounce_ms": ("debounce (in ms)", "debounceMs"),
    "max_wait_ms": ("max_wait (in ms)", "maxWaitMs"),
    "throttle_ms": ("throttle (in ms)", "throttleMs"),
    "after_ms": ("after (in ms)", "delayMs"),
    "all": ("all=True", "all: true"),
}
"""By the name inside: in Python, which takes durations, and in JSON. Others differ by their humps only."""
_QUOTED: Final = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_SAYING: Final = r"[\[.:]| must | has \d| holds | contains | looks | needs | cannot "
"""The words after a field's name in a message that says what the field must be."""
_HUMPS: Final = re.compile(r"_([a-z])")
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])[A-Z]")
SPEAKS_JSON: Final[ContextVar[bool]] = ContextVar("tocsin_speaks_json", default=False)
"""True if the caller speaks JSON. Who serves a request sets it for all that it calls and all tasks begun meanwhile."""


def word(name: str) -> str:
    """Return what the caller calls the argument that is `name` inside."""
    said = _SAID.get(name)
    if said is None:
        return member(name)
    return said[SPEAKS_JSON.get()]


def member(name: str) -> str:
    """Return what the caller calls the member `name` of a struct: its name in Python, its camel case in JSON."""
    return camel(name) if SPEAKS_JSON.get() else name


@cache
def camel(name: str) -> str:
    """Return the name in JSON: `max_concurrency` is `maxConcurrency`."""
    return _HUMPS.sub(lambda found: found[1].upper(), name)


PYTHON: Final[Mapping[str, str]] = {
    "functionPath": "path", "keepResultMs": "keep_result (in ms)", "delayMs": "delay (in ms)", "scheduledFor": "at",
    "all: true": "all=True", "leaseMs": "lease_ms", "ratePerSecond": "rate_per_second", "requestKey": "request_key",
    "everyMs": "every", "graceMs": "grace (in ms)", "jitterMs": "jitter (in ms)", "catchUpLimit": "catch_up_limit",
    "expiresAfterMs": "expires_after (in ms)", "dryRun": "dry_run", "cancelPending": "cancel_pending",
    "waitMs": "wait (in ms)", "debounceMs": "debounce (in ms)", "maxWaitMs": "max_wait (in ms)",
    "throttleMs": "throttle (in ms)", "retry.maxRetries": "retry.max_retries",
    "retry.baseMs": "retry.base_ms", "retry.maxMs": "retry.max_ms",
}  # fmt: skip
"""Of a server's words, for clients in Python; options of jobs whose words differ by humps only are in `job_options`."""


def reworded(message: str, words: Mapping[str, str]) -> str:
    """Return a server's message with other words for its fields; what it quotes stays.

    Names with humps or dots are changed wherever they stand, plain ones only where a message begins with what they must
    be, or asks to give them.
    """
    parts = _QUOTED.split(message)
    for name, instead in words.items():
        plain = name.islower() and name.isalpha()
        form = r"(?<=\bgive ){0}(?!\w)|^{0}(?={1})" if plain else r"(?<![\w.]){0}(?!\w)"
        pattern = re.compile(form.format(re.escape(name), _SAYING))
        for number in range(0, 1 if plain else len(parts), 2):
            parts[number] = pattern.sub(lambda _, instead=instead: instead, parts[number])
    return "".join(parts)


def meant(name: str, known: Iterable[str]) -> str:
    """Return the nearest known name, as a question to put behind a name that is not known; "" if none is near.

    Names of the other language are near: `maxConcurrency` is `max_concurrency` in Python.
    """
    from difflib import get_close_matches

    snake = _CAPITAL.sub(lambda found: f"_{found[0].lower()}", name[:80])
    close = get_close_matches(snake, sorted(known), 1, 0.7)
    return f" (do you mean {close[0]}?)" if close else ""


def kind_of(value: object) -> str:
    """Return what a value is called in a sentence: "an int", "a set"."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in tuple('aeiou') else 'a'} {name}"
