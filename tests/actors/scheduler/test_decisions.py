"""What is decided of a job, by pure functions: every answer of a receiver, and every cell of the table of events."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate

import msgspec
import pytest

from tocsin.actors.scheduler.model.rows import LARGEST_MS, PULLED, AtRow, JobRow, LeaseRow
from tocsin.actors.scheduler.model.suspects import ALONE, LOSSES_MAX
from tocsin.actors.scheduler.transitions import job as decide
from tocsin.actors.scheduler.transitions.job import Completion, Decision, Done, End, Expire, Hold, Next, Park, Requeue
from tocsin.actors.scheduler.transitions.states import EVENTS
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.dispatch.outcome import classify, from_error
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer, BrokenExchange, DeadlinePassed, NeverConnected, TransportError

NOW = 1_800_000_000_000
DAY, HOUR, MINUTE = 86_400_000, 3_600_000, 60_000
BACKOFF = 40_000
"""The delay that was drawn for the next charged failure."""
TOKEN = "1.7.0"


def job(*, retry: Retry | None = None, expires_at: int | None = None, keep: int | None = None) -> JobRow:
    return JobRow("x", "i-1", NOW, NOW, b"{}", retry=retry, expires_at=expires_at, keep_result_ms=keep)


def lease(kind: str = "fired", *, at: AtRow | None = None, promised: int = 0, orphan: bool = False) -> LeaseRow:
    """Of the first attempt, which began just now; it has 75 s."""
    return LeaseRow(
        until=NOW + 75_000,
        kind=kind,
        host="host",
        incarnation="i-1",
        pool="p",
        queue="",
        priority=0,
        length_ms=75_000,
        started=NOW,
        at=at or AtRow(NOW, attempt=1, last_token=TOKEN),
        orphan=orphan,
        charged=kind in ("accepted", "unknown"),
        retry_at=NOW + BACKOFF if kind == "unknown" else 0,
        promised=promised,
    )


# ---- Answers -------------------------------------------------------------------------------------

Said = Answer | TransportError | AttemptOutcome
Fate = tuple[object, ...]


def fate(decision: Decision) -> Fate:
    """What matters of a decision: what becomes of the job, when, and how many failures are charged."""
    if isinstance(decision, Hold):
        held = decision.lease
        return ("hold", held.kind, held.until - NOW, held.charged)
    match decision.next:
        case Done(result):
            return ("done", result)
        case Requeue(at):
            return ("retry", at.next_at - NOW, at.attempts)
        case Park(reason, at):
            return ("dead", reason, at.attempts)
        case Expire():
            return ("expired",)
        case _:
            return ("nothing",)


def answer(status: int, body: bytes = b"", **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


JSON = {"content_type": "application/json"}
ANSWERS: dict[str, tuple[Said, Fate]] = {
    "any 2xx": (answer(204), ("done", None)),
    "2xx with a result that nobody wants": (answer(200, b'{"n": 1}', **JSON), ("done", None)),
    "accepted": (answer(202, tocsin_accepted="1"), ("hold", "accepted", 15 * MINUTE, True)),
    "accepted for a while": (
        answer(202, tocsin_accepted="1", tocsin_lease_ms="90000"),
        ("hold", "accepted", 90_000, True),
    ),
    "declined": (answer(409, tocsin_declined="1"), ("retry", BACKOFF, 0)),
    "429 with Retry-After": (answer(429, retry_after="120"), ("retry", 120_000, 0)),
    "503 with a short Retry-After": (answer(503, retry_after="1"), ("retry", BACKOFF, 0)),
    "503 with a date": (answer(503, retry_after=formatdate(NOW / 1000 + 600, usegmt=True)), ("retry", 600_000, 0)),
    "503 with a long Retry-After": (answer(503, retry_after="86400"), ("retry", HOUR, 0)),
    "503 without": (answer(503), ("retry", BACKOFF, 1)),
    "410": (answer(410), ("dead", "refused", 1)),
    "retry never": (answer(422, tocsin_retry="never"), ("dead", "refused", 1)),
    "other 4xx": (answer(404), ("retry", BACKOFF, 1)),
    "5xx": (answer(500), ("retry", BACKOFF, 1)),
    "a redirect": (answer(302, location="/elsewhere"), ("retry", BACKOFF, 1)),
    "a broken answer": (BrokenExchange("reset"), ("retry", BACKOFF, 1)),
    "deadline passed": (DeadlinePassed("60 s"), ("hold", "unknown", 75_000, True)),
    "never connected": (NeverConnected("refused"), ("retry", 5_000, 0)),
    "blocked": (AttemptOutcome(Verdict.BLOCKED, "authorize_fire said no"), ("dead", "blocked", 0)),
    "this host stopped": (AttemptOutcome(Verdict.STOPPED), ("hold", "unknown", 75_000, False)),
}


def judged(said: Said) -> AttemptOutcome:
    if isinstance(said, AttemptOutcome):
        return said
    return from_error(said) if isinstance(said, TransportError) else classify(said, NOW)


def settled(said: Said, *, of: JobRow | None = None, held: LeaseRow | None = None, now: int = NOW) -> Decision:
    return decide.settle(of or job(), held or lease(), judged(said), now, BACKOFF)


def test_every_verdict_has_a_row() -> None:
    assert {judged(said).verdict for said, _ in ANSWERS.values()} == set(Verdict)


@pytest.mark.parametrize("name", ANSWERS)
def test_what_an_answer_makes_of_its_job(name: str) -> None:
    said, expected = ANSWERS[name]

    assert fate(settled(said)) == expected


@pytest.mark.parametrize("name", ANSWERS)
def test_the_attempt_of_a_cancelled_job_frees_its_slot_or_holds_it_and_does_nothing_else(name: str) -> None:
    said, expected = ANSWERS[name]

    assert fate(settled(said, held=lease(orphan=True)))[:3] == (expected[:3] if expected[0] == "hold" else ("nothing",))


@pytest.mark.parametrize("said", [ANSWERS["declined"][0], ANSWERS["429 with Retry-After"][0]])
def test_what_is_a_day_past_due_is_charged_whatever_is_said(said: Said) -> None:
    late = settled(said, now=NOW + DAY)

    assert fate(late) == ("retry", DAY + BACKOFF, 1)
    assert fate(settled(said, now=NOW + DAY - 1))[2] == 0


def test_a_decline_waits_half_a_minute_though_the_backoff_is_shorter() -> None:
    declined = decide.settle(job(), lease(), judged(ANSWERS["declined"][0]), NOW, 100)

    assert fate(declined) == ("retry", 30_000, 0)


def test_the_last_retry_that_fails_leaves_a_dead_letter_with_its_answer() -> None:
    ended = settled(answer(500, b"oops"), of=job(retry=Retry(max_retries=0)))

    assert isinstance(ended, End)
    assert isinstance(ended.next, Park)
    assert (ended.next.reason, ended.next.response, ended.next.at.attempts) == ("exhausted", b"oops", 1)
    assert ended.next.at.last_error is not None
    assert ended.next.at.last_error.status == 500


def test_an_instant_that_no_row_holds_is_no_instant_of_a_retry() -> None:
    beyond = decide.settle(job(), lease(), judged(answer(500)), NOW, LARGEST_MS)

    assert fate(beyond) == ("dead", "unindexable", 1)


def test_what_expired_while_its_attempt_ran_is_not_tried_again() -> None:
    assert fate(settled(answer(500), of=job(expires_at=NOW))) == ("expired",)
    assert fate(settled(answer(204), of=job(expires_at=NOW))) == ("done", None)


def test_a_broken_answer_ends_no_attempt_that_was_promised_more_time() -> None:
    promised = settled(BrokenExchange("reset"), held=lease(promised=NOW + MINUTE))

    assert fate(promised) == ("hold", "unknown", 75_000, True)
    assert fate(settled(BrokenExchange("reset"), held=lease(promised=NOW + DAY))) == ("retry", BACKOFF, 1)


def test_a_result_is_kept_where_it_is_wanted_and_json() -> None:
    wanted = job(keep=HOUR)

    assert fate(settled(answer(200, b'{"n": 1}', **JSON), of=wanted)) == ("done", b'{"n": 1}')
    assert fate(settled(answer(200, b"{", **JSON), of=wanted)) == ("done", None)


# ---- The table of events -------------------------------------------------------------------------

KINDS = {"running": "fired", "accepted": "accepted", "unknown": "unknown", "pulled": PULLED}
LAST = job(retry=Retry(max_retries=0))
LOST = AtRow(NOW, attempt=5, losses=LOSSES_MAX - 1, apart=ALONE)


def by(outcome: Said, of: JobRow | None = None) -> Callable[[str], Decision]:
    return lambda kind: settled(outcome, of=of, held=lease(kind))


def completed(*, ok: bool, retryable: bool = True) -> Callable[[str], Decision]:
    said = Completion("x", TOKEN, ok=ok, retryable=retryable)
    return lambda kind: decide.complete(job(), lease(kind), said, NOW, BACKOFF)


DECIDED: dict[str, Callable[[str], Decision]] = {
    "done": by(answer(200)),
    "accepted": by(answer(202, tocsin_accepted="1")),
    "failed": by(answer(500)),
    "failed, no retry left": by(answer(500), LAST),
    "declined": by(answer(409, tocsin_declined="1")),
    "busy": by(answer(429, retry_after="120")),
    "refused": by(answer(410)),
    "no answer in time": by(DeadlinePassed("60 s")),
    "blocked": by(AttemptOutcome(Verdict.BLOCKED)),
    "unreachable": by(NeverConnected("refused")),
    "host stopped": by(AttemptOutcome(Verdict.STOPPED)),
    "completed": completed(ok=True),
    "completed as failed": completed(ok=False),
    "completed as refused": completed(ok=False, retryable=False),
    "renewed": lambda kind: decide.renew(lease(kind), NOW),
    "extended": lambda kind: decide.extend(lease(kind), NOW, MINUTE),
    "lease ended": lambda kind: decide.lease_ended(job(), lease(kind), NOW, BACKOFF),
    "lease ended, no retry left": lambda kind: decide.lease_ended(LAST, lease(kind), NOW, BACKOFF),
    "lease ended, fifth loss": lambda kind: decide.lease_ended(job(), lease(kind, at=LOST), NOW, BACKOFF),
    "never sent": lambda kind: decide.unsent(job(), lease(kind), NOW),
}
OF_QUEUES: dict[str, Callable[[], Next | End]] = {
    "moved": lambda: decide.move(AtRow(NOW), NOW + HOUR),
    "replaced": decide.Replace,
    "done, after its lease ended": lambda: decide.done_with(job(), None),
    "expired": lambda: decide.requeue(job(expires_at=NOW), AtRow(NOW), NOW),
    "retried": lambda: decide.retry_dead(AtRow(NOW, attempts=6, expires=True), NOW),
    "removed": decide.Drop,
    "too old": lambda: decide.Drop(aged=True),
}
WITHOUT_DECISION = {"due", "claimed", "claimed by a worker", "cancelled"}
"""Time passes, a lease is given, or the job is removed wherever it stands: nothing is decided."""
STATE_OF = {kind: state for state, kind in KINDS.items()}


def state_after(decision: Decision | Next) -> str:
    if isinstance(decision, Hold):
        return STATE_OF[decision.lease.kind]
    match decision.next if isinstance(decision, End) else decision:
        case Requeue(at):
            return "pending" if at.next_at > NOW else "waiting"
        case Park():
            return "dead"
        case _:
            return "gone"


def test_every_event_is_tried() -> None:
    assert set(EVENTS) == {*DECIDED, *OF_QUEUES, *WITHOUT_DECISION}


@pytest.mark.parametrize(
    ("event", "state"), [(event, state) for event, moves in EVENTS.items() if event in DECIDED for state in moves]
)
def test_what_an_event_makes_of_an_attempt(event: str, state: str) -> None:
    assert state_after(DECIDED[event](KINDS[state])) == EVENTS[event][state]


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_cancelled_job_is_gone_and_its_lease_goes_without_a_word(kind: str) -> None:
    cancelled = decide.cancel_running(lease(kind))

    assert cancelled == Hold(msgspec.structs.replace(lease(kind), orphan=True), decide.Cancel(None))
    for gone in (None, job()):
        assert decide.lease_ended(gone, cancelled.lease, NOW, BACKOFF) == decide.DROPPED
        assert decide.unsent(gone, cancelled.lease, NOW) == decide.DROPPED


def test_an_extension_never_shortens_what_a_lease_has() -> None:
    assert decide.extend(lease(), NOW, MINUTE).lease.until == NOW + 75_000
    longer = decide.extend(lease(), NOW, HOUR).lease
    assert (longer.until, longer.promised) == (NOW + HOUR, NOW + HOUR)


@pytest.mark.parametrize("event", OF_QUEUES)
def test_what_an_event_makes_of_a_job_without_an_attempt(event: str) -> None:
    assert set(EVENTS[event].values()) == {state_after(OF_QUEUES[event]())}
