"""Members of the record of a job that tell of calls which put it off."""

from __future__ import annotations

import msgspec

from tocsin.dispatch.plain import Plain


class PutOff(Plain, msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Of a job with a debounce: when the first of the calls came that it stands for, and until when further ones can
    put it off, epoch ms (left out: without end). Of one that runs: when the newest call, which is kept until then, is
    due at the earliest."""

    first_at: int | None = None
    until: int | None = None
    next_due: int | None = None
