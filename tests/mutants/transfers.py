"""Breakages of exports, imports and moves, and of the page of `tocsin top`."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

IN = "tests/actors/scheduler/test_transfer.py::"
OUT = "tests/actors/scheduler/test_leaving.py::"
ROWS = "tests/actors/scheduler/test_exported_rows.py::"
REFUSED = "tests/actors/scheduler/test_refused_imports.py::"
MOVES = "tests/cli/test_transfer.py::"
ARRIVAL = "actors/scheduler/transitions/arrival.py"
IMPORTING = "actors/scheduler/transfer/importing.py"

TRANSFERS = (
    Mutant(
        "import: rows that come run at once",
        ARRIVAL,
        "InstanceRow(paused=True, erasing=True, importing=token)",
        "InstanceRow(importing=token)",
        tests=(IN + "test_nothing_runs_and_nothing_changes_while_rows_come_and_what_is_left_alone_is_removed",),
    ),
    Mutant(
        "import: one that nobody goes on with stays",
        ARRIVAL,
        "ABANDONED_MS: Final = 60_000",
        "ABANDONED_MS: Final = 60_000_000",
        tests=(
            IN + "test_nothing_runs_and_nothing_changes_while_rows_come_and_what_is_left_alone_is_removed",
            IN + "test_a_host_that_dies_during_an_import_leaves_nothing_that_runs",
        ),
    ),
    Mutant(
        "import: the checksum is not compared",
        IMPORTING,
        "if self.trailer.sha256 != self._digest.hexdigest():",
        "if False:",
        tests=(REFUSED + "test_a_file_that_is_not_whole_leaves_nothing",),
    ),
    Mutant(
        "import: what is not sound runs",
        "actors/scheduler/transfer/local.py",
        "        if found.total:\n",
        "        if False:\n",
        tests=(REFUSED + "test_a_file_that_is_not_whole_leaves_nothing",),
    ),
    Mutant(
        "import: an attempt in flight in this very process counts as never sent",
        IMPORTING,
        "return _left(row) if row[0]",
        "return row if row[0]",
        tests=(OUT + "test_what_ends_behind_the_seal_is_told_to_the_other_place",),
    ),
    Mutant(
        "import: leases go on in the epoch of this place",
        "actors/scheduler/actor/scheduler_actor.py",
        "                    self.ctx.rise_above(epoch)\n",
        "",
        tests=(IN + "test_later_leases_have_later_epochs_also_if_the_clock_of_the_other_place_is_behind",),
    ),
    Mutant(
        "copy: jobs keep their names",
        IMPORTING,
        'return f"{drawn}{dash}{number}"',
        "return incarnation",
        tests=(IN + "test_the_jobs_of_a_copy_are_new_to_their_receivers_and_one_in_all_their_rows",),
    ),
    Mutant(
        "export: args that are null are none",
        "actors/scheduler/transfer/named_rows.py",
        'value != b"null" and ',
        "",
        tests=(ROWS + "test_a_row_of_each_kind_comes_back_from_its_line",),
    ),
    Mutant(
        "export: what a newer program wrote into a row is lost",
        "actors/scheduler/transfer/named_rows.py",
        "    if again != value and not _holds(",
        "    if False and not _holds(",
        tests=(ROWS + "test_a_row_that_a_newer_program_wrote_comes_back_with_what_this_one_does_not_know",),
    ),
    Mutant(
        "import: rows that nobody found sound are read when the instance begins",
        "actors/scheduler/state/rebuild.py",
        "    if state.instance.importing:\n        return",
        "    if False:\n        return",
        also=(
            (
                "actors/scheduler/state/rebuild.py",
                "layout = LAYOUT if state.instance.erasing else _check",
                "layout = _check",
            ),
        ),
        tests=(REFUSED + "test_rows_that_came_are_removed_whatever_they_say",),
    ),
    Mutant(
        "import: a row may be longer than a store holds",
        "actors/scheduler/transfer/named_rows.py",
        "    if len(key) > MAX_KEY or len(value) > MAX_VALUE:",
        "    if False:",
        tests=(REFUSED + "test_a_file_that_is_not_whole_leaves_nothing",),
    ),
    Mutant(
        "seal: the alarm of an instance that has left goes on",
        "actors/scheduler/actor/scheduler_actor.py",
        "        if state.instance.moving is not None and is_sealed(state.instance):\n            return\n",
        "",
        tests=(OUT + "test_a_sealed_instance_stays_so_over_restarts_and_its_export_keeps_the_names_of_its_jobs",),
    ),
    Mutant(
        "seal: claims that wait are not told",
        "actors/scheduler/actor/scheduler_actor.py",
        "        if is_sealed(turn.state.instance):\n            self._refuse_claims()\n",
        "",
        tests=(OUT + "test_claims_that_wait_and_claims_that_come_are_told_where_the_instance_is",),
    ),
    Mutant(
        "seal: claims that come are not told",
        "actors/scheduler/actor/scheduler_actor.py",
        "            case events.ClaimMore():\n                self._refuse_claims()\n",
        "",
        tests=(OUT + "test_claims_that_wait_and_claims_that_come_are_told_where_the_instance_is",),
    ),
    Mutant(
        "seal: jobs of an instance that has moved are late",
        "actors/scheduler/queries/jobs.py",
        "paused=rests(self.instance)",
        "paused=self.instance.paused",
        tests=(OUT + "test_what_moves_and_what_has_moved_says_where_to_wherever_somebody_looks",),
    ),
    Mutant(
        "seal: leases that left with their jobs are over",
        "actors/scheduler/queries/host_health.py",
        "if standing.leases_over and moved_to(summary.instance) is None:",
        "if standing.leases_over:",
        tests=(OUT + "test_what_moves_and_what_has_moved_says_where_to_wherever_somebody_looks",),
    ),
    Mutant(
        "seal: the same again is noted again",
        ARRIVAL,
        "    if row.moving is None or closed != row.moving[2]:\n",
        "    if True:\n",
        tests=(OUT + "test_the_logs_of_both_places_say_who_moved_it_from_where_and_where_to",),
    ),
    Mutant(
        "import: an empty instance is not noted",
        ARRIVAL,
        "    if by is not None:\n        said: ",
        "    if by is not None and jobs:\n        said: ",
        tests=(OUT + "test_an_empty_instance_that_came_is_in_the_log_too",),
    ),
    Mutant(
        "move: it is exported before it is sealed",
        "src/tocsin/cli/move.py",
        "    await here.seal(asked.name, move, to, closed=True)\n",
        "",
        tests=(MOVES + "test_a_move_that_is_stopped_anywhere_goes_on_and_at_no_time_both_run",),
    ),
    Mutant(
        "move: what has arrived is imported again",
        "src/tocsin/cli/move.py",
        "    if not _has_arrived(came, move):\n        if came.exists",
        "    if True:\n        if came.exists",
        tests=(MOVES + "test_a_move_that_is_stopped_anywhere_goes_on_and_at_no_time_both_run",),
    ),
    Mutant(
        "top: a rate forgets the minute before",
        "src/tocsin/cli/top_look.py",
        "earlier = 0 if before is None",
        "earlier = 0 if True",
        tests=("tests/cli/test_top.py::test_rates_are_those_of_the_last_minute",),
    ),
    Mutant(
        "top: a long name breaks its line",
        "src/tocsin/cli/top_page.py",
        "return Text(set_cell_size(_short(text, width), width), style",
        "return Text(text, style",
        tests=("tests/cli/test_top.py::test_a_page_fits_every_terminal",),
    ),
)
