"""Keep the first jobs of each bucket in memory, so that a claim reads only when they are used up.

Nobody else writes the rows of a scheduler, so what was read or written once is true until this writer changes it. A
turn or batch that is lost drops all memory, fronts included.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.rows import AtRow, JobRow

ROWS: Final = 256
"""How many jobs the front of a bucket holds at most."""
ENTERED: Final = 32
"""How many it holds while all of them have entered and none was read: a host may have thousands of schedulers."""
BYTES: Final = 256 * 1024
"""How many bytes of jobs all fronts of a scheduler hold at most, about."""
AHEAD: Final = 8
"""A claim reads this many times as many jobs as may start, so that most claims read nothing."""
LEAST_AHEAD: Final = 32
"""So many it reads in any case if there is room for them, and at first, while it is not known how large jobs are."""
OLD: Final = 256
"""A front makes room for another one once so many others were read after it."""
ROW_BYTES: Final = 512
"""About what a job takes in memory besides its args."""

Place = tuple[int, str]
"""Due instant and id: where a job stands in its bucket. The order of places is the order of their rows."""


class Known(msgspec.Struct):
    """A job and its place, which means something only while the job waits in its line."""

    job: JobRow
    at: AtRow


class Front:
    """The first jobs of one bucket: no other job of it stands before the last of them. It is never empty."""

    __slots__ = ("jobs", "most", "places", "read_at")

    def __init__(self, read_at: int, most: int) -> None:
        self.read_at = read_at
        self.most = most
        self.places: list[Place] = []
        self.jobs: dict[str, Known] = {}


class Fronts:
    """The fronts of all buckets of one scheduler, by the prefix of their rows."""

    def __init__(self) -> None:
        self._fronts: dict[bytes, Front] = {}
        self._size = 0
        self._reads = 0
        self._typical = BYTES // LEAST_AHEAD
        """How large jobs are, by those that were read last."""

    def known(self, prefix: bytes) -> Mapping[str, Known]:
        """Return the jobs of the bucket's front."""
        front = self._fronts.get(prefix)
        return {} if front is None else front.jobs

    def first_due(self, prefix: bytes) -> int | None:
        """Return when the first job of the bucket is due, if that is known."""
        front = self._fronts.get(prefix)
        return None if front is None else front.places[0][0]

    def reaching(self, prefix: bytes, count: int, most: int, now: int) -> Front | None:
        """Return the front if it holds what a claim of `most` jobs needs of a bucket that holds `count`: all that are
        due, or so many, and the one behind them."""
        front = self._fronts.get(prefix)
        if front is None:
            return None
        places = front.places
        return front if len(places) > most or len(places) == count or places[-1][0] > now else None

    def ahead(self, most: int, buckets: int) -> int:
        """Return how many jobs to read of each of so many buckets, for a claim of `most` jobs: the one behind them in
        any case, and more if they are small and there is room: what must be forgotten at once is not worth a read."""
        self._reads += 1
        while self._size > BYTES // 2 and self._is_old(oldest := next(iter(self._fronts))):
            self._drop(oldest)
        fit = min(ROWS, (BYTES - self._size) // self._typical) // buckets
        return max(min(max(AHEAD * most, LEAST_AHEAD), fit), most + 1)

    # ---- What changes them -----------------------------------------------------------------------

    def entered(self, prefix: bytes, count: int, job: JobRow, at: AtRow) -> None:
        """Note that a job has entered a bucket, which holds `count` jobs now."""
        front = self._fronts.get(prefix)
        if front is None:
            if count != 1 or self._size + ROW_BYTES + len(job.args) > BYTES:
                return
            front = self._fronts[prefix] = Front(self._reads, min(ENTERED, ROWS))
        places, place, size = front.places, (at.next_at, job.id), ROW_BYTES + len(job.args)
        if places and place < places[-1]:
            insort(places, place)
        elif len(places) == count - 1 < front.most and self._size + size <= BYTES:
            places.append(place)
        else:
            return
        front.jobs[job.id] = Known(job, at)
        self._size += size
        if len(places) > front.most or self._size > BYTES:
            self._forget(front, places.pop()[1])
            while places and self._size > BYTES:
                self._forget(front, places.pop()[1])
            if not places:
                del self._fronts[prefix]

    def entered_together(self, prefix: bytes, count: int, jobs: Sequence[JobRow]) -> None:
        """Note that jobs have entered a bucket at their own instants; it holds `count` jobs now."""
        for held, job in enumerate(jobs, count - len(jobs)):  # how many it held before this job
            front = self._fronts.get(prefix)
            if front is None:
                if held:
                    return
            elif len(front.places) != held and (job.scheduled_for, job.id) > front.places[-1]:
                continue  # behind the front
            self.entered(prefix, held + 1, job, AtRow(job.scheduled_for))

    def left(self, prefix: bytes, due: int, job_id: str) -> None:
        """Note that a job has left a bucket."""
        front = self._fronts.get(prefix)
        if front is None or (known := front.jobs.get(job_id)) is None or known.at.next_at != due:
            return
        places = front.places
        del places[0 if places[0][1] == job_id else bisect_left(places, (due, job_id))]
        del front.jobs[job_id]
        self._size -= ROW_BYTES + len(known.job.args)
        if not places:
            del self._fronts[prefix]

    def read(self, prefix: bytes, places: Iterable[Place], known: Mapping[str, Known]) -> None:
        """Take the first places of a bucket, as they were read. A job that is missing or unreadable ends the front
        before its place: a claim finds out what is wrong."""
        self._drop(prefix)
        front, most, size = Front(self._reads, ROWS), BYTES - self._size, 0
        for due, job_id in places:
            one = known.get(job_id)
            if one is None or one.at.next_at != due or len(front.places) == ROWS:
                break
            size += ROW_BYTES + len(one.job.args)
            if size > most:
                size -= ROW_BYTES + len(one.job.args)
                break
            front.places.append((due, job_id))
            front.jobs[job_id] = one
        if front.places:
            self._typical = size // len(front.places)
            self._fronts[prefix] = front
            self._size += size

    def _is_old(self, prefix: bytes) -> bool:
        return self._fronts[prefix].read_at <= self._reads - OLD

    def _drop(self, prefix: bytes) -> None:
        if (front := self._fronts.pop(prefix, None)) is not None:
            self._size -= sum([ROW_BYTES + len(one.job.args) for one in front.jobs.values()])

    def _forget(self, front: Front, job_id: str) -> None:
        self._size -= ROW_BYTES + len(front.jobs.pop(job_id).job.args)
