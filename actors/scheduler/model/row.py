"""The base of all rows of a scheduler."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """`tag` is the version: a later shape gets another number and a decoder for both. Members that are added stand at
    the end and have a default, so that older rows are read."""
