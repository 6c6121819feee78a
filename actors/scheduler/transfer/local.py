"""`LocalTransfer`: an instance comes or goes in the process that holds the store."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.actor.clock_names import ID as CLOCK_NAMES
from tocsin.actors.scheduler.actor.clock_names import NoteName
from tocsin.actors.scheduler.integrity.findings import Findings
from tocsin.actors.scheduler.integrity.invariants import examine
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.asked_by import PYTHON, AskedBy
from tocsin.actors.scheduler.model.clock import CLOCK
from tocsin.actors.scheduler.model.counters import Counters
from tocsin.actors.scheduler.model.moving import META_IMPORT, Imported, ImportRow, TransferState
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.rows import INSTANCE, META_COUNTERS, InstanceRow, decode, encode
from tocsin.actors.scheduler.model.validation import instance_name
from tocsin.actors.scheduler.transitions import events
from tocsin.errors import ConflictError, InvalidInputError, NotFoundError
from tocsin.storage.api import MAX_SCAN_BYTES, Range, Row, StoreView

if TYPE_CHECKING:
    from tocsin.actors.scheduler.actor.service import SchedulerService

FAULTS_SHOWN: Final = 3
ALWAYS: Final = 0
"""A wake time that covers everything: the true one is set when the instance begins."""


class LocalTransfer:
    """Carries out what `TransferPort` says."""

    def __init__(self, service: SchedulerService, name: str, who: AskedBy = PYTHON) -> None:
        self._service, self.name, self._who = service, instance_name(name), who
        self._id = actor_of(self.name)

    def asked_by(self, who: AskedBy) -> LocalTransfer:
        """Return the same, whose audit log names `who`."""
        return LocalTransfer(self._service, self.name, who)

    async def begin_import(self, token: str) -> None:
        await self._do(events.BeginImport(token))

    async def import_rows(self, token: str, rows: Sequence[Row]) -> None:
        await self._do(events.ImportRows(token, rows))

    async def end_import(self, token: str, instance: InstanceRow, origin: ImportRow, epoch: int, jobs: int) -> None:
        view = self._view()
        if token != (await self._instance()).importing:
            if (await view.get([META_IMPORT])).get(META_IMPORT) == encode(origin):
                return  # asked for a second time
            await self._do(events.ImportRows(token, ()))  # which says why
        found = await examine(_Finished(view, encode(instance)), ALWAYS)
        if found.total:
            raise _faulty(found)
        if await view.get([CLOCK]):
            await self._service.host.call(CLOCK_NAMES, NoteName(self.name))
        await self._do(events.EndImport(token, instance, origin, epoch, self._who, jobs))

    async def abandon_import(self, token: str) -> None:
        while (await self._instance()).importing == token:
            while (await self._service.host.call(self._id, events.ErasePage())).more:
                pass

    async def state(self) -> TransferState:
        view = self._view()
        meta = await view.get([INSTANCE, META_COUNTERS, META_IMPORT])
        row = decode(InstanceRow, INSTANCE, meta[INSTANCE]) if INSTANCE in meta else InstanceRow()
        is_counted = META_COUNTERS in meta and not row.importing  # what comes may be anything
        counters = decode(Counters, META_COUNTERS, meta[META_COUNTERS]) if is_counted else Counters()
        moving = row.moving or (None, None, False)
        return TransferState(
            exists=bool(await view.scan(b"\x01", b"\xff", limit=1)),
            in_flight=counters.leased + counters.orphaned,
            importing=bool(row.importing),
            move=moving[0],
            to=moving[1],
            sealed=moving[2],
            imported=_imported(self.name, meta),
        )

    async def seal(self, move: str, to: str, closed: bool) -> TransferState:
        name = arguments.plain_name(move, "move")
        if not isinstance(to, str) or not to.isprintable() or not 1 <= len(to) <= arguments.LONGEST_PLACE:
            raise InvalidInputError(f"to must be a printable text of 1 to {arguments.LONGEST_PLACE} characters")
        if not (await self.state()).exists:
            raise NotFoundError(f"there is no instance {self.name!r}")
        await self._do(events.Seal(name, to, closed, self._who))
        return await self.state()

    async def unseal(self, move: str) -> bool:
        try:
            return await self._service.host.call(self._id, events.Unseal(move, self._who), create=False)
        except NotFoundError:
            return False

    def _view(self) -> StoreView:
        return self._service.host.provider.view(str(self._id))

    async def _instance(self) -> InstanceRow:
        rows = await self._view().get([INSTANCE])
        return decode(InstanceRow, INSTANCE, rows[INSTANCE]) if INSTANCE in rows else InstanceRow()

    async def _do(self, event: Event[ConflictError | None]) -> None:
        answer: Awaitable[ConflictError | None] = self._service.host.call(self._id, event)
        if (refusal := await answer) is not None:
            raise refusal


def _imported(name: str, meta: Mapping[bytes, bytes]) -> Imported | None:
    if META_IMPORT not in meta:
        return None
    row = decode(ImportRow, META_IMPORT, meta[META_IMPORT])
    return Imported(name, row.source, row.exported_at, row.rows, row.sha256, row.move or None)


def _faulty(found: Findings) -> InvalidInputError:
    first = "; ".join(fault.message for fault in found.faults[:FAULTS_SHOWN])
    more = f"; and {found.total - FAULTS_SHOWN:,} more" if found.total > FAULTS_SHOWN else ""
    return InvalidInputError(
        f"what this export holds is not sound, so nothing of it runs: {first}{more}. "
        "Mend the store that it came from (`tocsin check --repair`) and export again"
    )


class _Finished(StoreView):
    """The rows as they are once the import has ended."""

    def __init__(self, view: StoreView, instance: bytes) -> None:
        self._under, self._instance = view, instance

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found = await self._under.get(keys)
        if INSTANCE in found:
            found[INSTANCE] = self._instance
        return found

    async def scan_many(
        self, ranges: Sequence[Range], *, max_bytes: int = MAX_SCAN_BYTES, reverse: bool = False
    ) -> list[list[Row]]:
        found = await self._under.scan_many(ranges, max_bytes=max_bytes, reverse=reverse)
        return [[(key, self._instance if key == INSTANCE else value) for key, value in rows] for rows in found]
