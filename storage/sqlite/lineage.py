"""The history that a file's pages belong to, by the row `lineage`, which each start and each backup draws anew.

The number of the last transaction alone does not tell a copy from the file: a backup of a minute ago may have the same
number, and so may another branch of the store. Rows and counters on two pages tell them apart:

- `lineage` of the start that committed last, and `parent`, the lineage before it. A start moves its own into the file.
- `counter`, which SQLite raises when it writes page 1, and begins anew in a copy. Each start raises it by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.errors import RolledBack

HEAD: Final = 100
_WAL_VERSION: Final = 2
"""Bytes 18 and 19 of a file that has a WAL."""
SETTLED_SEQS: Final = 3
"""How far `seq` may be ahead of the known transaction while a commit is settled."""
READS_OF_A_PAGE: Final = 5
"""A page that is being written may read as neither its old nor its new content."""
_LINEAGE_BYTES: Final = 6


class FileReplaced(RolledBack):
    """The file at the store's path is not the open one, or is cut: the WAL must not be moved into it."""


def draw() -> int:
    """Draw a lineage that no start and no backup has had."""
    return int.from_bytes(os.urandom(_LINEAGE_BYTES), "big") + 1


@dataclass(frozen=True, slots=True)
class Mark:
    """The history by the page of `meta`. In a store of an older tocsin, `lineage` and `parent` are 0."""

    seq: int
    lineage: int
    parent: int

    @classmethod
    def of(cls, rows: dict[str, int]) -> Mark:
        return cls(rows.get("seq", 0), rows.get("lineage", 0), rows.get("parent", 0))


def counter(head: bytes) -> int:
    """Return how often page 1 was written, by the first bytes of the file; 0 if it is no file with a WAL."""
    return int.from_bytes(head[24:28], "big") if head[18:19] == bytes([_WAL_VERSION]) else 0


def is_base(file: Mark, wal: Sequence[Mark]) -> bool:
    """Tell whether a WAL, of which these are all marks, belongs to this file.

    Either its first transaction follows the last one of the file, or a checkpoint has moved one of the WAL's
    transactions into the file.
    """
    if not wal:
        return True
    first = wal[0]
    if file.lineage == first.parent and file.seq == first.seq - 1:
        return True  # the first transaction is that of a start, which could not move it into the file
    known = {mark.lineage for mark in wal}
    return file.lineage in known and first.seq - 1 - SETTLED_SEQS <= file.seq <= max(mark.seq for mark in wal)


class Lineage:
    """The lineage in the pages of the open file when last read: a checkpoint brings them forward only. For
    all threads."""

    def __init__(self, page: Callable[[int, int], bytes], words: str) -> None:
        """`page(number, size)` reads so many bytes of a page from the file itself. `words`: its name, for errors."""
        self._page, self._words = page, words
        self._number, self._size, self._own = 0, 0, 0
        self._known: frozenset[int] = frozenset()
        self._committed: Callable[[], int] = _nothing
        self._seen = (b"", 0, 0)
        self.head = b""
        """The first bytes of the file as seen last if they hold both pages; while these are unchanged, both are."""

    def hold(
        self, number: int, size: int, own: int, others: Iterable[int], committed: Callable[[], int]
    ) -> tuple[int, int]:
        """Take this page as that of `meta` from now on. Return the transaction and the counter that the file has.

        `own` is the lineage of this start; `others` are those that the WAL may still bring into the file.
        `committed()` returns the last transaction.
        """
        self._number, self._size, self._committed = number, size, committed
        pages = self._both()
        mark, count = Mark.of(small_table(pages[size:])), counter(pages)
        self._own, self._known = own, frozenset(others) | {own, mark.lineage}
        self._see(pages, mark.seq, count)
        return mark.seq, count

    def let_go(self) -> None:
        self._number, self.head = 0, b""

    def _see(self, pages: bytes, seq: int, count: int) -> None:
        self._seen = (pages, seq, count)
        self.head = pages if self._number == 2 else b""

    def moved_seq(self) -> int:
        """Return the last transaction that the file itself holds, whatever is in the WAL."""
        for _ in range(READS_OF_A_PAGE):
            if rows := small_table(self._page(self._number, self._size)):
                return rows.get("seq", 0)
        return 0

    def check(self) -> None:
        """Raise FileReplaced if the pages are neither those that were held, nor written by a checkpoint since."""
        if not self._number:
            return
        for _ in range(READS_OF_A_PAGE):
            pages, (seen, least, raised) = self._both(), self._seen
            if pages == seen or self._forward(pages, least, raised):
                return
        raise FileReplaced(
            f"{self._words} was overwritten while it was in use: nothing more is written to it; stop this process, put "
            "the right file in its place and start again"
        )

    def _both(self) -> bytes:
        """Read page 1 and that of `meta`: neighbours, unless another program has rewritten the file."""
        if self._number == 2:
            return self._page(1, 2 * self._size)
        return self._page(1, self._size) + self._page(self._number, self._size)

    def _forward(self, pages: bytes, least: int, raised: int) -> bool:
        page = pages[self._size :]
        # A new file is given its length before its pages.
        rows = small_table(page) if any(page) else {"seq": 0}
        mark, count = Mark.of(rows), counter(pages)
        # A start by another process, where file locks mean nothing, is no copy: it fences this one and keeps its data.
        ours = mark.lineage in self._known or mark.parent == self._own
        if not (rows and ours and count >= raised):
            return False
        if not least <= mark.seq <= self._committed() + SETTLED_SEQS:
            return False
        self._see(pages, mark.seq, count)
        return True


def _nothing() -> int:
    return 0


def small_table(page: bytes) -> dict[str, int]:
    """Parse `meta(k TEXT, v INTEGER) WITHOUT ROWID` from its only page; empty if the page is something else."""
    try:
        if page[0] != 0x0A:  # a leaf of an index, which is what such a table is
            return {}
        rows = {}
        for n in range(int.from_bytes(page[3:5], "big")):
            cell = int.from_bytes(page[8 + 2 * n : 10 + 2 * n], "big")
            # Short rows: each of these lengths is one byte.
            header, text, number = page[cell + 1], page[cell + 2], page[cell + 3]
            start = cell + 1 + header
            length = (text - 13) // 2
            if header != 3 or text < 13 or not text % 2 or number not in _INTEGER_BYTES:
                return {}
            rows[page[start : start + length].decode()] = _integer(page, start + length, number)
    except (IndexError, UnicodeDecodeError):
        return {}
    return rows


_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}
"""SQLite's serial types of whole numbers, and their sizes; 8 and 9 are 0 and 1."""


def _integer(page: bytes, at: int, kind: int) -> int:
    if kind in (8, 9):
        return kind - 8
    return int.from_bytes(page[at : at + _INTEGER_BYTES[kind]], "big", signed=True)
