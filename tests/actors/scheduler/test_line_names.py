"""The names of lines: each tells level, queue or origin, and shard of its jobs, and is found again from their rows."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.actors.scheduler.model import line_names
from tocsin.actors.scheduler.model.flow_rows import JobExtras
from tocsin.actors.scheduler.model.rows import AtRow, JobRow, line_key, lines_key, split_line_tail, split_lines_key

NAMES = st.from_regex(r"[A-Za-z0-9_.:-]{1,128}", fullmatch=True)
PLACES = st.builds(AtRow, next_at=st.integers(0, 10**14), apart=st.integers(0, 3), in_turn=st.booleans())


@given(queue=st.just("") | NAMES, origin=st.just("") | NAMES, shard=st.none() | st.text(max_size=50), at=PLACES)
def test_a_line_tells_of_its_jobs_what_their_rows_tell(queue: str, origin: str, shard: str | None, at: AtRow) -> None:
    extras = JobExtras(origin=origin) if origin else None
    job = JobRow("j", "1-1", 0, 0, b"{}", queue="" if origin else queue, shard_key=shard, extras=extras)

    line = line_names.line_of(job, at)

    assert line_names.level_in(line) == at.apart
    assert line_names.queue_in(line) == job.queue
    assert line_names.origin_in(line) == origin
    assert line_names.shard_in(line) == (line_names.shard_of(shard or "") if at.in_turn else "")
    assert line_names.marked(line_names.base_in(line), at.apart) == line_names.whole(line)
    assert line_names.line_of(job, line_names.place_in(line, at.next_at)) == line, "found again without its own row"


@given(shard=st.text(max_size=300), queue=NAMES)
def test_any_text_is_a_shard_key_whose_line_is_a_key_of_the_store(shard: str, queue: str) -> None:
    job = JobRow("j", "1-1", 5, 0, b"{}", pool="p", queue=queue, shard_key=shard)
    line = line_names.line_of(job, AtRow(5, in_turn=True))

    assert split_lines_key(lines_key("p", line)) == ("p", line)
    assert split_line_tail(line_key("p", line, 0, 5, "j")) == (5, "j")


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("", " "), ("a#b", "a/b"), ("é", "e")])
def test_different_shard_keys_have_different_lines(one: str, other: str) -> None:
    assert line_names.shard_of(one) != line_names.shard_of(other)


def test_a_job_of_older_rows_is_in_the_line_of_its_queue() -> None:
    job = JobRow("j", "1-1", 5, 0, b"{}", queue="q")
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(msgspec.msgpack.encode(job))[:-1])

    read = msgspec.msgpack.decode(older, type=JobRow)

    assert read == job
    assert line_names.line_of(read, AtRow(5)) == "q"
