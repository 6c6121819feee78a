"""A server's words for what it refuses, as they were typed: `maxConcurrency` was `--max-concurrency`."""

from __future__ import annotations

from typing import Final

import click

from tocsin.cli.job_options import FLAGS as OF_OPTIONS
from tocsin.dispatch.words import reworded

FLAGS: Final = {
    **OF_OPTIONS,
    "onConflict": ("--on-conflict",),
    "retry.maxRetries": ("--max-retries",),
    "retry.backoff": ("--backoff",),
    "retry.baseMs": ("--base",),
    "retry.maxMs": ("--max-delay",),
    "retry.jitter": ("--retry-jitter", "--jitter"),
    "expiresAt": ("--expires-at",),
    "expiresAfterMs": ("--expires-after",),
    "keepResultMs": ("--keep-result",),
    "delayMs": ("--in",),
    "scheduledFor": ("--at",),
    "everyMs": ("--every",),
    "graceMs": ("--grace",),
    "catchUpLimit": ("--catch-up-limit",),
    "jitterMs": ("--jitter",),
    "ratePerSecond": ("--rate-per-second",),
    "leaseMs": ("DURATION",),
    "waitMs": ("--wait",),
    "requestKey": ("--key",),
    "functionPath": ("--path", "PATH"),
    "workflow": ("PATH",),
    "timezone": ("--tz",),
    "cron": ("--cron",),
    "label": ("--label",),
    "args": ("--args",),
    "result": ("--result",),
    "reason": ("--reason",),
    "since": ("--since",),
    "misfire": ("--misfire",),
    "overlap": ("--overlap",),
    "revision": ("--revision",),
    "id": ("--id", "ID"),
    "lease": ("LEASE",),
    "name": ("NAME",),
    "prefix": ("PREFIX",),
    "error": ("--failed",),
}
"""Of a request's fields: the first that the command has."""
JSON: Final = ("then", "args", "result")
"""Their value was JSON, so what the message says of its inside is in the words of who typed it."""


def as_typed(message: str) -> str:
    """The message in the words of the command that runs; outside of one as it is."""
    context = click.get_current_context(silent=True)
    if context is None:
        return message
    typed: set[str] = set()
    for parameter in context.command.params:
        typed |= {*parameter.opts} if isinstance(parameter, click.Option) else {parameter.make_metavar(context)}
    words = {field: flag for field, flags in FLAGS.items() for flag in flags[::-1] if flag in typed}
    inside = next((field for field in JSON if field in words and message.startswith((f"{field}[", f"{field}."))), None)
    return reworded(message, words if inside is None else {inside: words[inside]})
