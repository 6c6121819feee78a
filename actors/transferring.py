"""`Transferring`: what a host does with whole instances, as files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from tocsin.actors.scheduler.model.asked_by import PYTHON, AskedBy, in_python
from tocsin.actors.scheduler.model.moving import Exported, Imported, TransferState
from tocsin.actors.scheduler.model.validation import instance_name
from tocsin.actors.scheduler.transfer.exporting import export
from tocsin.actors.scheduler.transfer.files import AnyFile, read_file, write_file
from tocsin.actors.scheduler.transfer.importing import load
from tocsin.actors.scheduler.transfer.local import LocalTransfer
from tocsin.actors.scheduler.transfer.manifest import Manifest
from tocsin.actors.sharing.remote_port import remote_part

if TYPE_CHECKING:
    from tocsin.actors.cluster.cluster import Cluster
    from tocsin.actors.runtime.host import Host
    from tocsin.actors.scheduler.actor.service import SchedulerService
    from tocsin.actors.scheduler.client.port import TransferPort
    from tocsin.actors.sharing.sharing import Sharing


class Transferring:
    """The part of a host that writes instances to files, and makes instances of them."""

    runtime: Host
    _service: SchedulerService
    _sharing: Sharing | None
    _cluster: Cluster | None

    def transfers(self, name: str, who: AskedBy = PYTHON) -> TransferPort:
        """Return what lets an instance come and go, in the process that holds the store. Its audit log names `who`."""
        if self._sharing is not None and self._sharing.follows:
            there: TransferPort = remote_part("transfer")(self._sharing.follower, instance_name(name), who)
            return there
        here = LocalTransfer(self._service, name, who)
        return here if self._cluster is None else self._cluster.transfers(here, instance_name(name), who)

    async def exported(self, name: str) -> tuple[Manifest, AsyncIterator[bytes]]:
        """Return what an export says of itself, and its pieces, as of this instant; the instance goes on."""
        return await export(self.runtime.provider, instance_name(name), self.runtime.clock.now_ms)

    async def export_instance(self, name: str, file: AnyFile) -> Exported:
        """Write everything of an instance to a file, as of one instant, while it goes on; docs/export.md.

        `file` is a path, which must be new, or a binary file. NotFoundError if there is no such instance.
        """
        _, pieces = await self.exported(name)
        return await write_file(pieces, file)

    async def import_instance(
        self,
        name: str,
        file: AnyFile,
        *,
        same_jobs: bool | None = None,
        paused: bool | None = None,
        by: str | None = None,
    ) -> Imported:
        """Make an instance of a file; nothing of it runs before all of it was read and found sound.

        `same_jobs=True` if the instance that was exported will never run again: its jobs keep their `webhook-id`. Those
        of a copy get new ones. None: a copy, unless `tocsin move` wrote the file. `paused`: whether it is to be; None:
        as it was. `by`: for whom, as the audit log says. ConflictError if the instance exists, InvalidInputError for a
        file that is not whole or not sound.
        """
        async with aclosing(read_file(file)) as pieces:  # it may be refused before the end of the file
            return await self.load(name, pieces, same_jobs=same_jobs, paused=paused, who=_who(by))

    async def transfer_state(self, name: str) -> TransferState:
        """Return the part that an instance has in an import or a move."""
        return await self.transfers(name).state()

    async def seal(
        self, name: str, *, move: str, to: str, closed: bool = False, by: str | None = None
    ) -> TransferState:
        """Have an instance take no new work and start nothing, because it moves to another place (`to`, for people).

        `closed`: nothing of it changes any more; what its attempts come to is told to the other place. `move` names
        the move; the same again changes nothing. `by`: for whom, as the audit log says. `tocsin move` does all of it.
        """
        return await self.transfers(name, _who(by)).seal(move, to, closed)

    async def unseal(self, name: str, *, move: str, by: str | None = None) -> bool:
        """Let an instance go on that was to move. False if it was not, or by another move."""
        return await self.transfers(name, _who(by)).unseal(move)

    async def load(
        self,
        name: str,
        pieces: AsyncIterator[bytes],
        *,
        same_jobs: bool | None = None,
        paused: bool | None = None,
        who: AskedBy = PYTHON,
    ) -> Imported:
        """Make an instance of the pieces of a file; see `import_instance`."""
        random, now_ms = self.runtime.random, self.runtime.clock.now_ms
        target = self.transfers(instance_name(name), who)
        return await load(target, name, pieces, random, now_ms, same_jobs=same_jobs, paused=paused)


def _who(by: str | None) -> AskedBy:
    return PYTHON if by is None else in_python(by)
