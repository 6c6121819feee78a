"""One host of a store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from tocsin.errors import StoreUnavailable
from tocsin.storage.ownership.provider import OwnedProvider
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.postgres.engine import PostgresEngine
from tocsin.storage.postgres.snapshot import PostgresLook, PostgresSnapshot


class PostgresProvider(OwnedProvider):
    """An `OwnedProvider` that can be read as of one instant while it is in use."""

    def __init__(self, url: str, *, timing: Timing | None = None, random: Random | None = None) -> None:
        engine = PostgresEngine(url, random=random)
        super().__init__(engine, timing=timing or engine.timing, random=random)
        self._url = url

    @contextmanager
    def live(self) -> Iterator[PostgresSnapshot]:
        """Hold one snapshot on a connection of its own."""
        look = PostgresLook(self._url)
        try:
            with look.snapshot() as snapshot:
                yield snapshot
        finally:
            look.close()

    def scratch(self) -> BinaryIO:
        try:
            return cast(BinaryIO, TemporaryFile())
        except OSError as error:
            raise StoreUnavailable(
                f"no file can be made in the folder for temporary files: {error.strerror}; see TMPDIR"
            ) from error
