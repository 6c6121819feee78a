"""The operations that go over a link: every method of the scheduler's port, and a few of the host's.

Their codecs follow from the annotations of the port. What may become of a call whose answer was lost is said here for
each of them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from enum import Enum
from types import UnionType
from typing import Any, Final, Protocol, Union, get_args, get_origin, get_type_hints

import msgspec

from tocsin.actors.scheduler.client import port
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.due_run import DueRun
from tocsin.actors.scheduler.model.records import InstancePage
from tocsin.actors.scheduler.transitions.settle import AttemptResult
from tocsin.dispatch.words import kind_of
from tocsin.errors import InvalidInputError


class Again(Enum):
    """The fate of a call that was sent to a holder that went away before it answered."""

    REPEATED = "repeated"
    """Sent to the next holder: a second time changes nothing that the first one did not."""
    LOOKED_UP = "looked up"
    """Sent again only if the next holder, which is asked, does not know of it."""
    MAY_BE = "may be"
    """The caller gets a HolderLostError, and may repeat it: what is to be so is so after a second time as well."""
    MAY_NOT_BE = "may not be"
    """The caller gets a HolderLostError, and must look first: a second time might do it twice."""


class HostPort(Protocol):
    """The operations of the whole host, beside those of one scheduler."""

    async def instances(self, *, cursor: str | None, limit: int) -> InstancePage:
        """List the schedulers, as `ActorHost.instances` does."""
        ...

    async def run_due(self, *, until: int, max_seconds: float | None) -> DueRun:
        """Do what is due until an instant (epoch ms), as `ActorHost.run_due` does."""
        ...

    async def call(self, kind: str, name: str, method: str, args: bytes) -> bytes:
        """Run a method of a user's own actor; args and answer are MessagePack."""
        ...

    async def accepted(self, instance: str, jobs: Sequence[tuple[str, str]]) -> Sequence[bool]:
        """Tell of each job, by id and incarnation, whether it was ever accepted, whatever became of it since."""
        ...

    async def keep_pass(self, digest: str, holder: str) -> None:
        """Keep a pass that opens one WebSocket, in whichever process."""
        ...

    async def take_pass(self, digest: str) -> str | None:
        """Return for whom a pass is, and forget it."""
        ...

    async def note_clock(self, instance: str) -> None:
        """Remember that an instance is about to get a test clock."""
        ...

    async def settle(self, instance: str, ends: Sequence[AttemptResult]) -> None:
        """Settle attempts that ended in a process that has handed over the store while they ran."""
        ...


PARTS: Final[dict[str, type]] = {
    "jobs": port.JobsPort,
    "changes": port.ChangesPort,
    "reads": port.ReadsPort,
    "queues": port.QueuesPort,
    "schedules": port.SchedulesPort,
    "transfer": port.TransferPort,
    "host": HostPort,
}

_AGAIN: Final[dict[Again, str]] = {
    Again.REPEATED: """
        jobs.submit_once jobs.first_answer changes.complete changes.extend
        reads.get reads.list reads.dead reads.status reads.why reads.history reads.pool reads.redrive reads.audit
        reads.clock reads.dead_groups reads.group reads.groups reads.members reads.changes reads.activity
        queues.claim queues.give_back queues.queues queues.pending queues.outcome queues.announce queues.workers
        schedules.get schedules.list schedules.occurrences schedules.preview
        schedules.backfills
        transfer.begin_import transfer.import_rows transfer.end_import transfer.abandon_import
        transfer.state transfer.seal transfer.unseal
        host.instances host.accepted host.settle host.run_due host.keep_pass host.note_clock
    """,
    Again.LOOKED_UP: "jobs.submit jobs.submit_many",
    Again.MAY_BE: """
        changes.cancel changes.cancel_all changes.reschedule changes.dead_cancel changes.redrive_stop changes.set_pool
        changes.set_queue
        changes.dead_cancel_all changes.undo changes.open_group changes.seal_group changes.cancel_group
        changes.delete_pool changes.free_slot changes.set_instance changes.remove changes.set_clock changes.freeze_clock
        schedules.put schedules.register schedules.pause schedules.resume schedules.delete
        schedules.backfill_stop
        host.take_pass
    """,
    Again.MAY_NOT_BE: """
        changes.dead_retry changes.dead_retry_all schedules.trigger schedules.backfill host.call changes.advance_clock
    """,
}
AGAIN: Final = {name: again for again, names in _AGAIN.items() for name in names.split()}

_WAITS: Final[dict[str, tuple[str, int]]] = {
    "queues.claim": ("wait_ms", 1000),
    "queues.outcome": ("wait_s", 1),
    "reads.clock": ("wait_s", 1),
    "reads.changes": ("wait_s", 1),
}
"""Operations that may wait: the argument that says how long (None: for ever), and how many of its unit a second has."""
_UNDO: Final[dict[str, Callable[[Any], tuple[str, list[Any]]]]] = {
    "queues.claim": lambda jobs: ("queues.give_back", [[(one.id, one.lease) for one in jobs]])
}
"""By which operation, with which arguments, an answer is given back that nobody hears any more."""
MOST_CALLS: Final = 10_000
"""Calls under way on one link. Each that waits, for a job or for the end of one, counts."""

_encoder: Final = msgspec.json.Encoder(enc_hook=str)  # details of errors may be of any type
_IN_JSON: Final = (str, int, float, bool, type(None), object, Any, ...)
_OF_PARTS: Final = (Union, UnionType, Sequence, tuple, list)
_PLAIN: Final = (str, int, float, bool, bytes, type(None))


class Operation:
    """One method of one part of a port, and how its arguments and its answer are written."""

    def __init__(self, part: str, method: str, function: Any) -> None:
        self.name, self.part, self.method = f"{part}.{method}", part, method
        self.again = AGAIN[self.name]
        hints = get_type_hints(function)
        answer = hints.pop("return")
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self.parameters = tuple(one.name for one in parameters)
        self._by_place = sum(one.kind is not inspect.Parameter.KEYWORD_ONLY for one in parameters)
        self._typed = [not _is_plain(hints[name]) for name in self.parameters]
        shapes = tuple(Any if _is_plain(hints[name]) else hints[name] for name in self.parameters)
        self._arguments: msgspec.json.Decoder[Any] = msgspec.json.Decoder(tuple.__class_getitem__(shapes))
        self._answer = msgspec.json.Decoder(answer)
        self._waits = _WAITS.get(self.name)
        self.undo = _UNDO.get(self.name)

    @property
    def may_wait(self) -> bool:
        """Return whether it is answered only when something happens, or after a time."""
        return self._waits is not None

    def values(self, args: Sequence[Any], named: dict[str, Any]) -> list[Any]:
        """Put the arguments of a call in the order of the parameters."""
        return [*args, *(named[name] for name in self.parameters[len(args) :])]

    @property
    def is_asked_on(self) -> bool:
        """Return whether it is asked again as soon as it is answered, so that an empty answer in no time would never
        end."""
        return self.name == "reads.changes"

    @property
    def awaits_end(self) -> bool:
        """Return whether it waits for what goes on whoever waits: a stop of whoever is asked does not end it."""
        return self.name in ("queues.outcome", "reads.clock")

    @property
    def is_claim(self) -> bool:
        """Return whether it leases jobs: then it is not asked in vain."""
        return self.undo is not None

    def wait_s(self, values: Sequence[Any]) -> float:
        """Return how long a call may wait; for ever if it does not say."""
        if self._waits is None:
            return 0.0
        name, per_second = self._waits
        wait = values[self.parameters.index(name)]
        return float(wait) / per_second if isinstance(wait, (int, float)) else math.inf

    def waiting_less(self, values: Sequence[Any], seconds: float) -> list[Any]:
        """Return the arguments of a call that has waited so long already."""
        left = list(values)
        if self._waits is not None:
            name, per_second = self._waits
            place = self.parameters.index(name)
            if isinstance(left[place], (int, float)):
                left[place] = type(left[place])(max(left[place] - seconds * per_second, 0))
        return left

    def without_wait(self, values: Sequence[Any]) -> list[Any]:
        """Return the arguments of a call that is not to wait."""
        left = list(values)
        if self._waits is not None:
            left[self.parameters.index(self._waits[0])] = 0
        return left

    def encode(self, values: Sequence[Any]) -> bytes:
        """Write arguments. What no port could take is an InvalidInputError here, as it is where it is checked."""
        for name, value, typed in zip(self.parameters, values, self._typed, strict=True):
            if not typed and not isinstance(value, _PLAIN) and not _are_plain(value):
                raise InvalidInputError(f"{name} must be text, a number, true or false, not {kind_of(value)}")
        try:
            return msgspec.json.encode(values)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(f"{self.name}: an argument cannot be sent: {error}") from error

    def decode(self, body: bytes | msgspec.Raw) -> Sequence[Any]:
        """Read arguments."""
        read: Sequence[Any] = self._arguments.decode(body)
        return read

    def encode_answer(self, answer: Any) -> bytes:
        return _encoder.encode(answer)

    def decode_answer(self, body: bytes) -> Any:
        return self._answer.decode(body)

    def called(self, values: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return these arguments as the method of a port takes them: by place, and by name."""
        by_place = self._by_place
        return values[:by_place], dict(zip(self.parameters[by_place:], values[by_place:], strict=True))

    async def run(self, port: Any, values: Sequence[Any]) -> Any:
        """Call the method of a port with these arguments."""
        by_place, named = self.called(values)
        return await getattr(getattr(port, self.part), self.method)(*by_place, **named)


def _are_plain(value: object) -> bool:
    """Return whether this is a list of plain values, as names of queues are."""
    return isinstance(value, (list, tuple)) and all(isinstance(one, _PLAIN) or _are_plain(one) for one in value)


def _is_plain(hint: Any) -> bool:
    """Return whether values of this type are what JSON has, so that they can be read without knowing the type."""
    parts = get_args(hint)
    return hint in _IN_JSON or (bool(parts) and get_origin(hint) in _OF_PARTS and all(map(_is_plain, parts)))


def _operations() -> dict[str, Operation]:
    found: dict[str, Operation] = {}
    for part, kind in PARTS.items():
        for method, function in vars(kind).items():
            if not method.startswith("_") and inspect.iscoroutinefunction(function):
                operation = Operation(part, method, function)
                found[operation.name] = operation
    return found


OPERATIONS: Final = _operations()


class Asked(msgspec.Struct, array_like=True, frozen=True):
    """The body of a call. `json`: whether the caller's own caller speaks JSON, and reads its errors in its words."""

    operation: str
    instance: str
    json: bool
    arguments: msgspec.Raw
    who: AskedBy | None = None
    """Who asks, where that is not code with a handle."""
    op: str = ""
    """The id of a call that may come again, and is done once."""


asked_decoder: Final = msgspec.json.Decoder(Asked)
