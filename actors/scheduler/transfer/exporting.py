"""An instance out of a store that may be in use: all of its rows as of one instant, in bounded memory.

Rows are first copied as they are into a file without a name, which takes seconds for a million jobs: no longer is the
snapshot held, and with it the log of the store from beginning anew. Lines are made of that file, as fast as whoever
wants them reads.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import BinaryIO, Final

import msgspec

from tocsin.actors.runtime.overlay import EPOCH
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.rows import INSTANCE, META_LAYOUT, InstanceRow, decode
from tocsin.actors.scheduler.transfer.manifest import FORMAT, Manifest, Trailer, written
from tocsin.actors.scheduler.transfer.named_rows import family_of, line_of
from tocsin.errors import ConflictError, NotFoundError, StoreUnavailable
from tocsin.storage.api import StoreProvider, row_pages
from tocsin.storage.aside import aside
from tocsin.storage.memory import MemoryProvider
from tocsin.storage.residency.provider import part_of
from tocsin.storage.snapshot import LiveStore, StoreSnapshot

ROWS_AT_ONCE: Final = 5_000
LINES_AT_ONCE: Final = 20
"""Behind so many the loop serves others: less than a millisecond of work."""
PIECE: Final = 64 * 1024
_LENGTH: Final = 4


@dataclass(slots=True)
class Copied:
    """The rows of one instance, in pages that are preceded by their length."""

    file: BinaryIO
    kinds: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    epoch: int = 0
    layout: int = 1
    instance: InstanceRow = field(default_factory=InstanceRow)
    lineage: str = ""


async def copy(snapshot: StoreSnapshot, name: str, file: BinaryIO) -> Copied:
    """Copy the rows of an instance. NotFoundError if there is none, ConflictError if it is not whole."""
    view, copied = snapshot.view(str(actor_of(name))), Copied(file, lineage=snapshot.lineage())
    meta = await view.get([EPOCH, META_LAYOUT, INSTANCE])
    copied.epoch, copied.layout = int(meta.get(EPOCH, b"0")), int(meta.get(META_LAYOUT, b"1"))
    if INSTANCE in meta:
        copied.instance = decode(InstanceRow, INSTANCE, meta[INSTANCE])
    if copied.instance.erasing:
        doing = "imported" if copied.instance.importing else "removed"
        raise ConflictError(f"instance {name!r} is being {doing}: there is nothing whole to export")
    encoder = msgspec.msgpack.Encoder()
    async for page in row_pages(view, b"\x01", b"\xff", ROWS_AT_ONCE):
        copied.rows += len(page)
        copied.kinds.update(family_of(key) for key, _ in page)
        packed = encoder.encode(page)
        file.write(len(packed).to_bytes(_LENGTH, "big"))
        file.write(packed)
    if not copied.rows:
        raise NotFoundError(f"there is no instance {name!r}")
    return copied


async def export(
    provider: StoreProvider, name: str, now_ms: Callable[[], int]
) -> tuple[Manifest, AsyncIterator[bytes]]:
    """Return what the file says of itself, and its pieces. Whoever does not read them to the end closes them."""
    provider = part_of(provider, str(actor_of(name)))
    if not isinstance(provider, LiveStore):
        raise StoreUnavailable("this engine cannot be read as of one instant while it is in use: it exports nothing")
    live, file = provider.live, provider.scratch()

    def copied_here() -> Copied:
        with live() as snapshot:
            return asyncio.run(copy(snapshot, name, file))

    try:
        if isinstance(provider, MemoryProvider):
            with live() as snapshot:
                copied = await copy(snapshot, name, file)
        else:
            copied = await aside(copied_here)
    except BaseException:
        file.close()
        raise
    manifest = manifest_of(copied, name, now_ms())
    return manifest, pieces(manifest, file)


def manifest_of(copied: Copied, name: str, at: int) -> Manifest:
    """Return the first line of what was copied."""
    moving = copied.instance.moving
    return Manifest(
        FORMAT, version("tocsin"), name, at, copied.layout, copied.epoch, copied.kinds["job"], copied.rows,
        dict(sorted(copied.kinds.items())), copied.lineage, moving[0] if moving is not None and moving[2] else "",
    )  # fmt: skip


async def pieces(manifest: Manifest, file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the file, piece by piece; close the copy at the end."""
    digest = hashlib.sha256()
    decoder = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])
    with closing(file):
        piece = written(manifest)
        digest.update(piece)
        yield piece
        file.seek(0)
        lines: list[bytes] = []
        while length := file.read(_LENGTH):
            page = decoder.decode(file.read(int.from_bytes(length, "big")))
            for first in range(0, len(page), LINES_AT_ONCE):
                lines += [line_of(key, value) for key, value in page[first : first + LINES_AT_ONCE]]
                await asyncio.sleep(0)
                if sum(map(len, lines)) >= PIECE:
                    yield _piece(lines, digest)
        yield _piece(lines, digest)
        yield written(Trailer(manifest.rows, digest.hexdigest()))


def _piece(lines: list[bytes], digest: hashlib._Hash) -> bytes:
    piece = b"".join(lines)
    lines.clear()
    digest.update(piece)
    return piece
