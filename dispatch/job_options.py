"""The options of a job: what callers may give, and what handlers and records show of them.

A new option is one member here, and one in each of: the rows (`JobRow`, `DefinitionRow`), the checks (`validation`),
the requests (`http/wire_jobs`), the signatures of `run_at` and `put`, and the command line (`cli/job_options`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypedDict

from tocsin.dispatch.durations import Duration
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.words import PYTHON, camel


class SharedOptions(TypedDict, total=False):
    """What both a job and a schedule take in Python; occurrences and jobs of a `then` have them too."""

    queue: str | None
    pool: str | None
    max_concurrency: int | None
    priority: int | None
    labels: Sequence[str] | None
    shard_key: str | None
    retry: Retry | None
    timeout_ms: int | None
    initiator: str | None


class OneJobOptions(SharedOptions, total=False):
    """What a single job takes besides `then`."""

    id: str | None
    on_conflict: str
    expires_at: datetime | int | None
    keep_result: Duration | None


LOCAL: Final = frozenset({"initiator"})
"""Options that requests do not hold: over HTTP the token says who asks."""
MEMBERS: Final = {
    **{name: camel(name) for name in OneJobOptions.__annotations__ if name not in LOCAL},
    "keep_result": "keepResultMs",
    "then": "then",
}
"""What an option of Python callers is called in JSON."""
PYTHON_WORDS: Final = {**{json: name for name, json in MEMBERS.items() if name != json}, **PYTHON}
"""What fields of a server's messages are called by clients in Python."""
