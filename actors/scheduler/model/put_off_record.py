"""Members of the record of a job that tell of calls which put it off."""

from __future__ import annotations

import msgspec

from tocsin.dispatch.plain import Plain


class PutOff(Plain, msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Of a debounced job that has not started: when the first call came of those that it stands for, and until when it
    can be put off, epoch ms (left out: without end). Of a job that runs: the same of the newest call, which is kept
    until the run has ended, and `next_due`, its due instant."""

    first_at: int | None = None
    until: int | None = None
    next_due: int | None = None
