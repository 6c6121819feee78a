"""Why a job is dead: every reason there is."""

from __future__ import annotations

from typing import Final, Literal, get_args

DeadReason = Literal["exhausted", "refused", "blocked", "lost", "unindexable", "damaged"]
"""Its retries are used up; its receiver said never (or 410), or another job had its id and nobody was there to be told;
the app's rule or the catalog refused it; its hosts were lost five times; its next attempt would lie beyond the last
instant there is; the store holds damaged bytes of it."""
DEAD_REASONS: Final[tuple[str, ...]] = get_args(DeadReason)
