"""Breakages of rows that an app puts into the store's mail."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

MAIL = "tests/actors/cluster/test_outbox_mail.py::"
LETTER = "tests/actors/scheduler/test_kept_as_letter.py::"
CLERK = "actors/cluster/clerk.py"
SUBMIT = "actors/scheduler/transitions/submit.py"

OUTBOX_MAIL = (
    Mutant(
        "outbox mail: a row that fails is answered, and so removed",
        CLERK,
        '                raise Stays(f"{type(error).__name__}: {error}") from error\n',
        "                pass\n",
        also=((CLERK, " or (isinstance(error, StoreFull) and not arrived.sender)", ""),),
        tests=(MAIL + "test_rows_wait_while_the_store_is_full",),
    ),
    Mutant(
        "outbox mail: a row that cannot be read is answered, and so removed",
        CLERK,
        '                raise Stays(f"it cannot be read here: {error}") from error\n',
        "                pass\n",
        tests=(MAIL + "test_a_row_that_cannot_be_read_stays_is_told_of_once_and_holds_up_nothing",),
    ),
    Mutant(
        "outbox mail: a row that stays is told of each time",
        CLERK,
        "            self._staying[arrived.op] = None\n",
        "            pass\n",
        tests=(MAIL + "test_a_row_that_cannot_be_read_stays_is_told_of_once_and_holds_up_nothing",),
    ),
    Mutant(
        "outbox mail: a refused job is told to nobody, and lost",
        SUBMIT,
        "        if answer is not None and new.parked_as and isinstance(answer, DuplicateScheduleIdError):\n",
        "        if False:\n",
        tests=(MAIL + "test_a_row_whose_id_is_taken_is_a_dead_letter_once",),
    ),
    Mutant(
        "outbox mail: a refused job is kept again each time that it comes",
        SUBMIT,
        "    if not await turn.jobs([new.parked_as]):\n",
        "    if True:\n",
        tests=(LETTER + "test_it_is_kept_once_however_often_it_is_brought",),
    ),
    Mutant(
        "outbox mail: a job beyond the quota is lost",
        SUBMIT,
        "        return await _kept_as_letter(turn, new, refused) if new.parked_as else refused\n",
        "        return refused\n",
        tests=(LETTER + "test_a_used_up_quota_makes_a_dead_letter_of_it_too",),
    ),
)
