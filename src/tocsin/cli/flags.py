"""Translate fields in a server's messages to the flags that were typed: `maxConcurrency` to `--max-concurrency`."""

from __future__ import annotations

import re
from typing import Final

import click

from tocsin.cli.job_options import FLAGS as OF_OPTIONS
from tocsin.cli.output import span
from tocsin.dispatch.words import reworded

_NAMED_ALIKE: Final = (
    "onConflict", "expiresAt", "expiresAfterMs", "keepResultMs", "debounceMs",
    "maxWaitMs", "throttleMs", "onThrottle", "everyMs", "graceMs", "catchUpLimit", "jitterMs",
    "ratePerSecond", "waitMs", "cron", "label", "args", "result", "reason", "since", "misfire", "overlap", "revision",
)  # fmt: skip
FLAGS: Final = {
    **OF_OPTIONS,
    **{field: ("--" + re.sub("([A-Z])", r"-\1", field.removesuffix("Ms")).lower(),) for field in _NAMED_ALIKE},
    "retry.jitter": ("--retry-jitter", "--jitter"),
    "delayMs": ("--in",),
    "scheduledFor": ("--at",),
    "leaseMs": ("DURATION",),
    "requestKey": ("--key",),
    "functionPath": ("--path", "PATH"),
    "workflow": ("PATH",),
    "timezone": ("--tz",),
    "id": ("--id", "ID"),
    "lease": ("LEASE",),
    "name": ("NAME",),
    "prefix": ("PREFIX",),
    "error": ("--failed",),
}
"""The flags of a request's field; the first that the command has is used."""
JSON: Final = ("then", "onDead", "args", "result")
"""Flags with a JSON value: field names inside it are the user's own and stay."""


_OUT_OF_LIMITS: Final = re.compile(r"\A((?:retry\.)?\w*Ms must be )(\d+)\.\.(\d+), not (\d+)\Z", re.ASCII)
"""A server's words on a duration, which was not typed in milliseconds."""


def _in_units(found: re.Match[str]) -> str:
    least, most, given = (span(int(ms)) for ms in found.group(2, 3, 4))
    return f"{found[1]}{least} to {most}, not {given}"


def as_typed(message: str) -> str:
    """Return the message with the flags of the running command; unchanged outside of one."""
    context = click.get_current_context(silent=True)
    if context is None:
        return message
    typed: set[str] = set()
    for parameter in context.command.params:
        typed |= {*parameter.opts} if isinstance(parameter, click.Option) else {parameter.make_metavar(context)}
    words = {field: flag for field, flags in FLAGS.items() for flag in flags[::-1] if flag in typed}
    message = _OUT_OF_LIMITS.sub(_in_units, message)
    inside = next((field for field in JSON if field in words and message.startswith((f"{field}[", f"{field}."))), None)
    return reworded(message, words if inside is None else {inside: words[inside]})
