"""Breakages of the SQLite engine: what is looked at when a store is opened, used, left, and looked at."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

S = "tests/storage/"

STORES = (
    Mutant(
        "store: a commit is not synced",
        "storage/sqlite/writer.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = NORMAL",
        tests=(
            S + "test_sqlite_long_running.py::test_a_commit_is_synced_before_it_is_answered_also_after_a_second_start",
        ),
    ),
    Mutant(
        "store: transactions missing behind a crash are passed over",
        "storage/sqlite/start_checks.py",
        "    if found < known:\n        raise lacking(path, known, found, keep_wal(path))\n",
        "    if False:\n        raise lacking(path, known, found, keep_wal(path))\n",
        tests=(S + "test_damaged_files.py::test_transactions_missing_behind_a_crash_are_noticed",),
    ),
    Mutant(
        "store: a new one that lost its WAL is a new one",
        "storage/sqlite/writer.py",
        "self._lock.last_commit(), self._stored_seq() if self._tables() else 0)",
        "self._lock.last_commit() if self._tables() else 0, self._stored_seq() if self._tables() else 0)",
        tests=(S + "test_wal.py::test_a_store_without_tables_that_lost_its_wal_is_no_new_store",),
    ),
    Mutant(
        "store: a file that is missing behind a crash is made anew",
        "storage/sqlite/start_checks.py",
        "    if known := lock.last_commit():\n",
        "    if known := 0:\n",
        tests=(S + "test_wal.py::test_a_store_without_tables_that_lost_its_wal_is_no_new_store",),
    ),
    Mutant(
        "store: one of a newer layout is opened",
        "storage/sqlite/writer.py",
        "        if layout[0] > LAYOUT:\n",
        "        if False:\n",
        tests=(S + "test_sqlite_file.py::test_a_file_that_is_not_ours_is_refused_and_left_as_it_was",),
    ),
    Mutant(
        "store: a database of others is opened",
        "storage/sqlite/writer.py",
        "        if layout is None or not isinstance(layout[0], int):\n",
        "        if False:\n",
        tests=(S + "test_sqlite_file.py::test_a_file_that_is_not_ours_is_refused_and_left_as_it_was",),
    ),
    Mutant(
        "store: the WAL of another file is moved into a backup",
        "storage/sqlite/start_checks.py",
        "    if mark.seq < moved or made_by_sqlite or lock.another_file(identity.inode) or not is_base(mark, marks):\n",
        "    if False:\n",
        tests=(S + "test_damaged_files.py::test_the_wal_of_a_killed_process_is_not_moved_into_a_backup",),
    ),
    Mutant(
        "store: any WAL belongs to any file",
        "storage/sqlite/lineage.py",
        "    return file.lineage in known and ",
        "    return ",
        tests=(
            S + "test_restored.py::test_a_log_belongs_to_the_file_that_it_began_in_front_of",
            S + "test_restored.py::test_a_copy_of_another_branch_of_the_store_is_refused_beside_the_wal_of_a_crash",
        ),
    ),
    Mutant(
        "store: a start leaves the file unmarked",
        "storage/sqlite/writer.py",
        "        self._mark_file()\n",
        "",
        tests=(
            S + "test_restored.py::test_a_backup_that_is_restored_twice_is_refused_beside_the_wal_of_the_first_time",
        ),
    ),
    Mutant(
        "store: a backup has the lineage of the store",
        "storage/sqlite/backup.py",
        "                copy.executemany(",
        "                (lambda *_: None)(",
        tests=(S + "test_restored.py::test_a_restore_beside_the_wal_of_a_killed_server_is_refused_and_says_so",),
    ),
    Mutant(
        "store: copies that SQLite makes are not told apart",
        "storage/sqlite/start_checks.py",
        "mark.seq < moved or made_by_sqlite or ",
        "mark.seq < moved or ",
        tests=(S + "test_restored.py::test_a_copy_made_since_the_last_start_is_refused_beside_the_wal_of_a_crash",),
    ),
    Mutant(
        "store: what is copied over the file in use is believed",
        "storage/sqlite/lineage.py",
        "rows and ours and count >= raised",
        "rows",
        tests=(S + "test_restored.py::test_a_copy_of_the_same_run_that_is_copied_over_the_store_is_noticed",),
    ),
    Mutant(
        "store: who reads does not look what lies under the store's name",
        "storage/sqlite/identity.py",
        "        self.lineage.check()\n",
        "",
        tests=(S + "test_restored.py::test_a_copy_of_the_same_run_that_is_copied_over_the_store_is_noticed",),
    ),
    Mutant(
        "store: pages that a WAL still has count as missing",
        "storage/sqlite/start_checks.py",
        "len(missing - pages_in_wal(path, size))",
        "len(missing)",
        tests=(S + "test_damaged_files.py::test_a_checkpoint_that_was_killed_in_its_middle_has_cut_nothing",),
    ),
    Mutant(
        "store: a file that was cut behind a crash is opened",
        "storage/sqlite/start_checks.py",
        "    if there >= pages or not wal.exists()",
        "    if True or not wal.exists()",
        tests=(S + "test_damaged_files.py::test_a_file_that_was_cut_behind_a_crash_is_refused_before_it_is_touched",),
    ),
    Mutant(
        "store: everybody may read a new one",
        "storage/sqlite/writer.py",
        "            make_private(self.path)\n",
        "",
        tests=(S + "test_sqlite_file.py::test_a_new_store_is_for_its_owner_only",),
    ),
    Mutant(
        "store: a stop that lost transactions is in order",
        "storage/sqlite/writer.py",
        "        if found >= self.seq:\n",
        "        if True:\n",
        tests=(S + "test_wal.py::test_a_stop_behind_a_wal_that_was_cut_is_not_in_order",),
    ),
    Mutant(
        "store: what a WAL without its name holds is not saved",
        "storage/sqlite/writer.py",
        '            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()\n'
        "        except sqlite3.Error as error:\n            log.warning",
        "            pass\n        except sqlite3.Error as error:\n            log.warning",
        tests=(
            S + "test_wal_under_server.py::test_what_was_answered_is_there_after_a_kill_though_the_wal_was_removed",
        ),
    ),
    Mutant(
        "store: what is left of a WAL that was cut is moved into the file",
        "storage/sqlite/writer.py",
        "            if not wal.whole:\n                wal.forget()\n",
        "",
        tests=(S + "test_wal.py::test_a_wal_that_is_cut_in_the_middle_of_a_transaction_makes_it_an_error",),
    ),
    Mutant(
        "store: a limit on the size of files is not a full disk",
        "storage/sqlite/errors.py",
        "errno.EFBIG: (StoreFull",
        "errno.EFBIG + 900: (StoreFull",
        tests=(S + "test_failure_causes.py::test_a_start_that_a_limit_stops_names_the_limit",),
    ),
    Mutant(
        "wal: another file under its name is not noticed",
        "storage/sqlite/wal.py",
        "        if (stat.st_dev, stat.st_ino) != self._inode:\n",
        "        if False:\n",
        tests=(S + "test_wal.py::test_a_wal_that_goes_under_a_running_host_is_noticed_at_once_and_stays_noticed",),
    ),
    Mutant(
        "wal: one that was cut in the middle of a commit is not noticed",
        "storage/sqlite/wal.py",
        "        header = self._check_header(seen, seq)\n",
        "        header = seen.header\n",
        tests=(S + "test_wal.py::test_a_wal_that_is_cut_in_the_middle_of_a_transaction_makes_it_an_error",),
    ),
    Mutant(
        "wal: one that another program moved into the file is a loss",
        "storage/sqlite/wal.py",
        "if size < seen.size and self._moved() < seen.seq:",
        "if size < seen.size:",
        tests=(S + "test_wal_beside_others.py::test_a_program_that_moves_the_wal_beside_the_host_is_no_trouble",),
    ),
    Mutant(
        "wal: one that begins anew is a loss",
        "storage/sqlite/wal.py",
        "needed = seen.seq if _sound(header) else None if header else seq",
        "needed = None",
        tests=(S + "test_wal_beside_others.py::test_a_program_that_moves_the_wal_beside_the_host_is_no_trouble",),
    ),
    Mutant(
        "wal: one that another program has just emptied is a loss",
        "storage/sqlite/wal.py",
        "_sound(header) else None if header else seq",
        "_sound(header) else None",
        tests=(
            S + "test_wal_beside_others.py::test_a_wal_that_another_program_empties_just_behind_a_commit_is_no_trouble",
        ),
    ),
    Mutant(
        "wal: a loss is forgotten when it has grown again",
        "storage/sqlite/wal.py",
        "        if self._lost is not None:\n            raise WalLost(self._lost)\n",
        "",
        tests=(S + "test_wal.py::test_a_wal_that_is_cut_in_the_middle_of_a_transaction_makes_it_an_error",),
    ),
    Mutant(
        "identity: a file that was cut in use is not noticed",
        "storage/sqlite/identity.py",
        "if stat.st_size < length and stat.st_size < self._least_length():",
        "if False:",
        tests=(S + "test_damaged_files.py::test_a_file_that_is_cut_in_use_is_noticed_and_nothing_is_moved_into_it",),
    ),
    Mutant(
        "identity: a file that another program made shorter in order is cut",
        "storage/sqlite/identity.py",
        "if stat.st_size < length and stat.st_size < self._least_length():",
        "if stat.st_size < length:",
        tests=(S + "test_replaced_files.py::test_a_file_that_another_program_makes_shorter_in_order_is_no_trouble",),
    ),
    Mutant(
        "look: a store that lacks transactions is shown as whole",
        "storage/sqlite/snapshot.py",
        "    if found < known:\n",
        "    if False:\n",
        tests=(
            S + "test_wal_under_server.py::test_the_command_line_says_what_a_store_lacks_and_a_backup_of_it_is_refused",
        ),
    ),
)
