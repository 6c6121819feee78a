"""A file into an instance: read as it comes, in bounded memory; nothing runs before all of it is known to be right."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from random import Random
from typing import Final, Protocol

import msgspec

from tocsin.actors.scheduler.model.flow_rows import FLOW_LAYOUT
from tocsin.actors.scheduler.model.moving import Imported, ImportRow
from tocsin.actors.scheduler.model.rows import INSTANCE, InstanceRow, LeaseRow, decode, encode
from tocsin.actors.scheduler.transfer.manifest import LONGEST_LINE, UNREADABLE, Manifest, Trailer, manifest_of
from tocsin.actors.scheduler.transfer.named_rows import Renamed, family_of, row_of, shown
from tocsin.errors import InvalidInputError
from tocsin.storage.api import Row

ROWS_AT_ONCE: Final = 2_000
BYTES_AT_ONCE: Final = 1024 * 1024
FIRED: Final = "fired"
LEFT: Final = "left-"
"""Before the name of the host of an attempt that was in flight."""
_end: Final = msgspec.json.Decoder(Trailer)


class Target(Protocol):
    """The instance that rows come into: see `port.TransferPort`."""

    async def begin_import(self, token: str) -> None: ...
    async def import_rows(self, token: str, rows: Sequence[Row]) -> None: ...
    async def end_import(self, token: str, instance: InstanceRow, origin: ImportRow, epoch: int, jobs: int) -> None: ...
    async def abandon_import(self, token: str) -> None: ...


class Arriving:
    """Reads the lines of one file, checks them, and hands on their rows."""

    def __init__(self, renamed: Callable[[Manifest], Renamed | None]) -> None:
        self.manifest: Manifest | None = None
        self.trailer: Trailer | None = None
        self.instance = InstanceRow()
        self.kinds: Counter[str] = Counter()
        self._rename = renamed
        self._renamed: Renamed | None = None
        self._digest = hashlib.sha256()
        self._last = b""

    def row(self, line: bytes) -> Row | None:
        """Return the row of a line; None for the first and the last one. InvalidInputError for what is wrong."""
        if self.manifest is None:
            self.manifest = manifest_of(line)
            if self.manifest.layout > FLOW_LAYOUT:
                raise InvalidInputError(
                    f"this export has rows of layout {self.manifest.layout}, and this version of tocsin reads up to "
                    f"{FLOW_LAYOUT}: upgrade tocsin"
                )
            self._renamed = self._rename(self.manifest)
            self._digest.update(line + b"\n")
            return None
        if self.trailer is not None:
            raise InvalidInputError("there is more behind the last line of this export: it is two files, or was edited")
        if line.startswith(b'{"tocsin":'):
            self._end(line)
            return None
        self._digest.update(line + b"\n")
        row = row_of(line, self._renamed)
        self._check_order(row[0])
        self.kinds[family_of(row[0])] += 1
        if row[0] == INSTANCE:
            self.instance = decode(InstanceRow, INSTANCE, row[1])
            return None
        return _left(row) if row[0].startswith(b"lease/") else row

    def _check_order(self, key: bytes) -> None:
        """Refuse keys of the runtime. Incarnations that are renamed change the order of history alone."""
        if key[:1] == b"\x00" or (key <= self._last and not (self._renamed and key.startswith(b"hist/"))):
            raise InvalidInputError(f"the line of {shown(key)} stands where no export writes it: the file was edited")
        self._last = max(key, self._last)

    def _end(self, line: bytes) -> None:
        assert self.manifest is not None
        try:
            self.trailer = _end.decode(line)
        except UNREADABLE:
            raise InvalidInputError("the last line of this export cannot be read: the file was edited") from None
        if self.trailer.sha256 != self._digest.hexdigest():
            raise InvalidInputError(
                "the checksum of this export is not that of its lines: the file was changed on its way, or edited"
            )
        if self.trailer.rows != self.manifest.rows or self.kinds != Counter(self.manifest.kinds):
            raise InvalidInputError("this export does not hold the rows that its first line tells of")

    def check_whole(self) -> tuple[Manifest, Trailer]:
        """Raise InvalidInputError if the file ended too early."""
        if self.manifest is None:
            raise InvalidInputError("the export is empty: its first line must be the manifest")
        if self.trailer is None:
            raise InvalidInputError(
                f"this export is cut off: {self.kinds.total():,} of {self.manifest.rows:,} rows are there, and no last "
                "line"
            )
        return self.manifest, self.trailer


def _left(row: Row) -> Row:
    """Return the lease as one of a host that is not this one, also in the very process that gave it: what was sent is
    not taken for what was never sent."""
    lease = decode(LeaseRow, *row)
    if lease.kind != FIRED or lease.host.startswith(LEFT):
        return row
    return row[0], encode(msgspec.structs.replace(lease, host=LEFT + lease.host))


async def lines_of(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield whole lines; InvalidInputError for one that is too long, or has no end."""
    left = b""
    async for piece in pieces:
        *whole, left = (left + piece).split(b"\n")
        for line in whole:
            yield line
        if len(left) > LONGEST_LINE:
            raise InvalidInputError(f"a line is longer than {LONGEST_LINE} bytes: this is no export of tocsin")
    if left:
        raise InvalidInputError("this export is cut off in the middle of a line")


def copied_names(random: Random) -> Renamed:
    """Return what gives each incarnation another name, the same to the same one: of a copy, whose receivers must not
    take its jobs for those of the original."""
    salt = random.getrandbits(128).to_bytes(16, "big")

    def renamed(incarnation: str) -> str:
        if not incarnation:
            return ""
        activation, dash, number = incarnation.rpartition("-")
        drawn = hashlib.blake2b(activation.encode(), digest_size=8, key=salt).hexdigest()
        return f"{drawn}{dash}{number}"

    return renamed


async def load(
    target: Target,
    name: str,
    source: AsyncIterable[bytes],
    random: Random,
    now_ms: Callable[[], int],
    *,
    same_jobs: bool | None = None,
    paused: bool | None = None,
) -> Imported:
    """Make an instance of a file. If anything is wrong, nothing of it is left.

    `same_jobs`: whether its jobs are those that were exported, or a copy of them; None: as the file says. `paused`:
    whether the instance is to be; None: as it was.
    """
    token = f"{random.getrandbits(64):016x}"
    arriving = Arriving(
        lambda manifest: None if (bool(manifest.move) if same_jobs is None else same_jobs) else copied_names(random)
    )
    begun = False
    try:
        page: list[Row] = []
        size = 0
        async for line in lines_of(source):
            row = arriving.row(line)
            if not begun:  # what is no export at all touches nothing
                begun = True
                await target.begin_import(token)
            if row is None:
                continue
            page.append(row)
            size += len(row[0]) + len(row[1])
            if len(page) >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
                await target.import_rows(token, page)
                page, size = [], 0
        manifest, trailer = arriving.check_whole()
        if page:
            await target.import_rows(token, page)
        instance = msgspec.structs.replace(arriving.instance, erasing=False, importing="", moving=None)
        if paused is not None and paused != instance.paused:
            instance = msgspec.structs.replace(instance, paused=paused, pause=None)
        origin = ImportRow(now_ms(), manifest.instance, manifest.at, manifest.rows, trailer.sha256, manifest.move)
        await target.end_import(token, instance, origin, manifest.epoch, manifest.jobs)
    except Exception:  # whatever ended it, also a caller that hung up: half an instance is of no use
        if begun:
            await target.abandon_import(token)
        raise
    kinds = dict(sorted(arriving.kinds.items()))
    return Imported(
        name, manifest.instance, manifest.at, manifest.rows, trailer.sha256, manifest.move or None, manifest.jobs, kinds
    )
