"""Files of exports on disk: written with a look at their checksum, and read piece by piece."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import nullcontext
from os import PathLike
from typing import IO, BinaryIO, Final

import msgspec

from tocsin.actors.scheduler.model.moving import Exported
from tocsin.actors.scheduler.transfer.importing import lines_of
from tocsin.actors.scheduler.transfer.manifest import Manifest, Trailer, manifest_of
from tocsin.errors import InvalidInputError, SettingsError

AnyFile = str | PathLike[str] | BinaryIO
PIECE: Final = 256 * 1024


async def write_file(pieces: AsyncIterable[bytes], file: AnyFile) -> Exported:
    """Write an export; what it is. A file of that name is not overwritten. InvalidInputError if it came incomplete."""
    with _opened(file, "xb") as out:
        digest, manifest, trailer = hashlib.sha256(), None, None
        async for line in lines_of(pieces):
            out.write(line + b"\n")
            if manifest is None:
                manifest = manifest_of(line)
            if line.startswith(b'{"tocsin":"end"'):
                trailer = msgspec.json.decode(line, type=Trailer)
            else:
                digest.update(line + b"\n")
        out.flush()
    return _whole(manifest, trailer, digest.hexdigest())


def _whole(manifest: Manifest | None, trailer: Trailer | None, sha256: str) -> Exported:
    if manifest is None or trailer is None or trailer.sha256 != sha256:
        raise InvalidInputError("the export came incomplete: it was cut off on its way, so export again")
    return Exported(
        manifest.instance, manifest.at, manifest.jobs, manifest.rows, sha256, manifest.kinds, manifest.move or None
    )


async def read_file(file: AnyFile) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a file. SettingsError if it cannot be read."""
    with _opened(file, "rb") as into:
        while piece := into.read(PIECE):
            yield piece


def _opened(file: AnyFile, mode: str) -> nullcontext[BinaryIO] | IO[bytes]:
    if not isinstance(file, (str, PathLike)):
        return nullcontext(file)
    try:
        return open(file, mode)
    except OSError as error:
        raise SettingsError(f"file {str(file)!r} cannot be opened: {error.strerror}") from error
