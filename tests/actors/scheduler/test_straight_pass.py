"""The straight pass of plain jobs does what the general way does: the same table drives both, and their rows agree."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.model.crockford import Minting, mint_id
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import INLINE_ARGS
from tocsin.actors.scheduler.model.validation import MAX_TARGET, OPTIONS, new_job, simple_job
from tocsin.actors.scheduler.state.fronts import Known
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import submit
from tocsin.actors.scheduler.transitions.apply import accept
from tocsin.dispatch.job_options import HandlerMembers
from tocsin.errors import TocsinError

NOW = 1_800_000_000_000
WHO = ("token", "user")
WRONG = "a value that no check lets pass"

# ---- Checking ------------------------------------------------------------------------------------

PATHS = [
    "w:r", "x" * MAX_TARGET, "x" * (MAX_TARGET + 1), "", " ", "\x1c", "\u2003", " w:r ", "w:ü", "w:\ud800", None, 7,
    b"w:r",
]  # fmt: skip
IDS = ["a", "_", "__x", "-a", "a b", "ä", "a\n", "x" * 64, "x" * 65, "", None, 7]
OTHERS: list[dict[str, Any]] = [
    {},
    *({name: WRONG} for name in sorted(OPTIONS - {"id"})),
    {"queue": "q"},
    {"pool": None},
    {"colour": 1},
]


def checked(way: Any, path: Any, options: dict[str, Any], args: bytes) -> NewJob | str | None:
    try:
        return way(path, options, args)  # type: ignore[no-any-return]
    except TocsinError as error:
        return repr(error)


def straight(path: Any, options: dict[str, Any], args: bytes) -> NewJob | None:
    return simple_job(path, args, NOW + 5, options, NOW, lambda now: f"minted-{now}", WHO)


def general(path: Any, options: dict[str, Any], args: bytes) -> NewJob:
    return new_job(
        function_path=path, workflow=None, args=args, scheduled_for=NOW + 5, enqueued_at=NOW, minted=f"minted-{NOW}",
        options=options, initiator=WHO,
    )  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=repr)
def test_a_job_is_checked_alike_or_left_to_the_general_way(path: Any) -> None:
    for job_id, others in product(IDS, OTHERS):
        options: dict[str, Any] = {"id": job_id, **others}
        for args in (b"{}", b"x" * INLINE_ARGS, b"x" * (INLINE_ARGS + 1)):
            made = checked(straight, path, options, args)
            assert made is None or made == checked(general, path, options, args)


def test_a_job_with_a_path_and_perhaps_an_id_takes_the_straight_pass() -> None:
    for options in ({}, {"id": "a"}, {"id": None, "queue": None}):
        assert straight("w:r", options, b"{}") == general("w:r", options, b"{}")


def test_the_size_of_a_job_counts_every_text_that_its_rows_and_its_callback_hold() -> None:
    plain = general("w:r", {}, b"{}").size
    for name in HandlerMembers.__struct_fields__:
        assert general("w:r", {name: ["x"] if name == "labels" else "x"}, b"{}").size > plain
    assert general("w:rr", {}, b"{}").size == general("w:r", {"id": f"minted-{NOW}x"}, b"{}").size == plain + 4
    assert general("w:r", {"initiator": "xxxx"}, b"{}").size == plain - 4 * len(WHO[0])


# ---- Submitting ----------------------------------------------------------------------------------


def job(**options: Any) -> Job:
    return Job(path=options.pop("path", "w:r"), args={"n": 1}, after=options.pop("after", 60), options=options)


CHAIN = [Job(path="w:next")]
BATCHES: dict[str, list[Job]] = {
    "one": [job()],
    "minted": [job(after=n % 7) for n in range(50)],
    "chosen": [job(id=f"j{n}", after=9 - n) for n in range(9)],
    "several places": [
        job(queue=f"q{n % 3}", pool=f"p{n % 2}", priority=n % 4 - 1, path=f"w:{n % 5}") for n in range(40)
    ],
    "the same id twice": [job(id="a"), job(id="b"), job(id="a", after=5)],
    "the same id twice, replaced": [job(id="a"), job(id="a", after=5, on_conflict="replace")],
    "the same id twice, kept": [job(id="a"), job(id="a", on_conflict="keep")],
    "an id that is taken": [job(id="b"), job(id="taken"), job(id="c")],
    "an id that is taken, replaced": [job(id="b"), job(id="taken", on_conflict="replace"), job(id="c")],
    "refused ones between": [job(id="b"), job(id="__"), job(path=""), job(priority=99), job(id="c")],
    "labels": [job(), job(labels=["l"])],
    "an expiry": [job(), job(expires_at=NOW + 900_000)],
    "a chain": [job(), job(then=CHAIN)],
    "a cap": [job(pool="p"), job(pool="p", max_concurrency=3)],
    "long args": [job(), Job(path="w:r", args="x" * (INLINE_ARGS + 1), after=5)],
    "results": [job(keep_result="1h", id=f"r{n}") for n in range(3)],
    "one more than the quota": [job() for _ in range(60)],
    "just the quota": [job() for _ in range(59)],
}  # fmt: skip


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_a_batch_leaves_the_same_answers_and_rows_both_ways(batch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Any]:
        left: list[Any] = []

        @on_simulated_host(max_jobs=60)
        async def main(sim: SimulatedHost) -> None:
            await sim.jobs.run_after(30, "w:r", id="taken")
            left.append([repr(one) for one in await sim.jobs.submit_many(BATCHES[batch])])
            left.append(await sim.host.runtime.provider.view("scheduler/t").scan(b"", b"\xff", limit=5_000))
            assert await sim.faults() == []

        main()
        return left

    straight = run()
    monkeypatch.setattr(submit, "_all_plain", lambda turn, jobs: False)
    assert straight == run()


def test_batches_of_plain_jobs_are_accepted_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one: list[str] = []

    def counting(turn: Turn, new: NewJob, start_at: int) -> Known:
        one_by_one.append(new.job.id)
        return accept(turn, new, start_at)

    monkeypatch.setattr(submit, "accept", counting)

    @on_simulated_host()
    async def main(sim: SimulatedHost) -> None:
        for batch in ("one", "minted", "chosen", "several places", "results"):
            await sim.jobs.submit_many(BATCHES[batch])
            assert one_by_one == []
        await sim.jobs.submit_many(BATCHES["labels"])
        assert len(one_by_one) == 2

    main()


# ---- Ids -----------------------------------------------------------------------------------------


class Draws(Random):
    """Counts how often it is asked."""

    asked = 0

    def getrandbits(self, k: int) -> int:
        self.asked += 1
        return super().getrandbits(k)


def test_ids_of_one_millisecond_are_counted_and_sort_as_they_were_minted() -> None:
    random = Draws(1)
    minting = Minting(random)
    ids = [minting.next(NOW) for _ in range(5_000)]
    assert random.asked == 1
    ids += [minting.next(NOW + 1), minting.next(NOW + 2)]
    assert random.asked == 3
    assert ids == sorted(set(ids))
    assert {len(one) for one in ids} == {len(mint_id(NOW, 0))}
    assert mint_id(NOW, 0) <= ids[0] and ids[4_999] < mint_id(NOW + 1, 0)


def test_ids_are_drawn_anew_when_a_millisecond_has_no_numbers_left() -> None:
    random = Draws(1)
    minting = Minting(random)
    ids = {minting.next(NOW) for _ in range((1 << 20) + 5)}
    assert random.asked == 2 and len(ids) == (1 << 20) + 5


def test_ids_that_several_threads_mint_are_all_different() -> None:
    minting = Minting(Random(4))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            minted = threads.map(lambda n: [minting.next(NOW + n // 100) for _ in range(50)], range(400))
            ids = [one for some in minted for one in some]
    finally:
        sys.setswitchinterval(before)
    assert len({*ids}) == len(ids) == 20_000


def test_ids_never_come_again_when_the_clock_does_or_the_process_is_another() -> None:
    random = Random(3)
    here, there = Minting(random), Minting(random)
    times = [NOW, NOW + 1, NOW, NOW + 1, NOW]
    ids = [minting.next(now) for now in times for minting in (here, there, here)]
    assert len({*ids}) == len(ids)
