"""What the log says at its default level, for tests that cannot have fixtures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")

    def of(self, words: str) -> list[str]:
        """The lines that hold these words."""
        return [line for line in self.lines if words in line]


@contextmanager
def heard() -> Iterator[Heard]:
    """Warnings and worse of every logger of tocsin."""
    handler, logger = Heard(), logging.getLogger("tocsin")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
