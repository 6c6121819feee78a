"""Args as people read them, where they asked for them."""

from __future__ import annotations

from typing import Final

import msgspec

ARGS_MOST: Final = 64 * 1024
"""Characters of args that a page shows. Indented, deep ones are a hundred times as long as they came."""
DAMAGED: Final = "damaged in the store"


def readable(raw: msgspec.Raw | msgspec.UnsetType) -> tuple[str, bool]:
    """Return args as indented text, and whether that was too long for a page."""
    if isinstance(raw, msgspec.UnsetType):
        return DAMAGED, False
    text = msgspec.json.format(bytes(raw), indent=2).decode()
    return text[:ARGS_MOST], len(text) > ARGS_MOST
