"""Describe a caller's action in plain English, for errors that say who may not."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import msgspec

DEEDS: Final = msgspec.json.decode(files(__package__).joinpath("deeds.json").read_bytes(), type=dict[str, str])
"""By the action of an operation: the name of the Python method."""


def deed(action: str) -> str:
    """Return what may not be done, as it stands behind `may not`."""
    return DEEDS.get(action, action)
