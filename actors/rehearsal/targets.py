"""Named origins and URLs that jobs go to, and those that follow them: a rehearsal has and allows all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat

from tocsin.actors.scheduler.model.flow_rows import JobExtras
from tocsin.actors.scheduler.model.followers import followers_of, jobs_of, on_dead_of, with_ids
from tocsin.actors.scheduler.model.rows import BadRow, JobRow, args_key
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow
from tocsin.dispatch.url_list import host_of


@dataclass(slots=True)
class Targets:
    """Places that callbacks go to, besides the host's own origin."""

    origins: set[str] = field(default_factory=set)
    """By name."""
    hosts: set[str] = field(default_factory=set)
    """Of URLs, with their schemes."""

    def note(self, jobs: Iterable[JobRow], rows: Mapping[bytes, bytes | None]) -> None:
        """Note where jobs go, and what follows them; `rows` has the rest of their args. A job without extras names no
        place, and neither does what follows it."""
        for job in jobs:
            whole = b"".join([job.args, *(rows.get(args_key(job.id, n)) or b"" for n in range(job.args_rows))])
            self._note(job.extras)
            try:
                following = [*jobs_of(followers_of(job, whole)), *jobs_of(on_dead_of(job, whole))]
            except BadRow:
                continue  # the scheduler parks it before it is sent
            for one in following:
                self._note(one.extras)

    def note_schedule(self, row: DefinitionRow) -> None:
        """Note where the occurrences of a schedule go, and those that follow them."""
        self._note(row.extras)
        for following in (row.then, row.on_dead):
            try:
                for one in jobs_of(with_ids(following, repeat(""))):
                    self._note(one.extras)
            except BadRow:
                continue  # it shows an error with its schedule

    def _note(self, extras: JobExtras | None) -> None:
        if extras is None:
            return
        if extras.url is not None:
            self.hosts.add(f"{host_of(extras.url)}/")
        elif extras.origin:
            self.origins.add(extras.origin)
