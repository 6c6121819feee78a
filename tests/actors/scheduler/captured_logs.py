"""Capture tocsin's warnings and errors, for tests that cannot use pytest fixtures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class CapturedLogs(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.instances: list[object] = []
        """The field `instance` of each line; None if it has none."""

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")
        self.instances.append(vars(record).get("instance"))

    def of(self, words: str) -> list[str]:
        """The lines that hold these words."""
        return [line for line in self.lines if words in line]


@contextmanager
def captured_logs() -> Iterator[CapturedLogs]:
    """Warnings and worse of every logger of tocsin."""
    handler, logger = CapturedLogs(), logging.getLogger("tocsin")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
