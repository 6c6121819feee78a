"""How a read is to be answered where several hosts share a store, and how it was: HTTP says it in a header."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


@dataclass(slots=True)
class Source:
    """One request. `fresh`: the owner of the scheduler is to answer; `from_store`: another host did, from the store."""

    fresh: bool = False
    from_store: bool = False


SOURCE: Final[ContextVar[Source | None]] = ContextVar("tocsin_source", default=None)
"""The source of the request that is served. Who serves it sets it for all that it calls."""
