"""Examples for the OpenAPI document: a request and its answer for each operation, by name, read from `examples.json`.
A test sends each request to a real app and compares."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import msgspec


class Example(msgspec.Struct, frozen=True):
    """A request body (None: no body) and its answer."""

    answer: Any
    request: Any = None


EXAMPLES: Final[Mapping[str, Example]] = msgspec.json.decode(
    files(__package__).joinpath("examples.json").read_bytes(), type=dict[str, Example]
)
LEASE: Final[str] = EXAMPLES["complete"].request["lease"]
