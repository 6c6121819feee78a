"""Breakages of slots that are freed by hand, and the tests that notice them."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

F = "actors/scheduler/transitions/free_slot.py"
T = "tests/actors/scheduler/test_free_slot.py::"

FREEING = (
    Mutant(
        "a slot is freed while its attempt is called",
        F,
        "lease.kind in HELD or (lease.orphan and not live(token))",
        "True",
        tests=(T + "test_an_attempt_that_runs_is_refused",),
    ),
    Mutant(
        "the slot of a cancelled job is freed while this host calls for it",
        F,
        "lease.orphan and not live(token)",
        "lease.orphan",
        tests=(T + "test_an_attempt_that_runs_is_refused",),
    ),
    Mutant(
        "a cancelled job whose slot is freed comes back as the newer job of its id",
        F,
        "None if lease.orphan or job_id not in known",
        "None if job_id not in known",
        tests=(T + "test_the_slot_of_a_cancelled_job_is_freed_and_its_id_may_be_held_by_another",),
    ),
    Mutant(
        "nothing says who freed a slot",
        F,
        'audit.note(turn, by, "free_slot"',
        'audit.note(turn, None, "free_slot"',
        tests=(T + "test_it_is_named_and_audited_with_its_pool_and_lease",),
    ),
    Mutant(
        "an attempt without an answer is retried at once when its slot is freed",
        "actors/scheduler/transitions/job.py",
        "        delay_ms = max(lease.retry_at - now, 0)  # it was drawn",
        "        delay_ms = 0  # it was drawn",
        tests=(T + "test_an_attempt_without_an_answer_is_freed_and_keeps_the_instant_of_its_retry",),
    ),
)
