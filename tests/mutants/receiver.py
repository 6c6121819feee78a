"""Breakages of the receiver kit: what is read of a callback, and what is on record."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

V = "tests/dispatch/receiver/"

RECEIVER = (
    Mutant(
        "receiver: a close that is cut off leaves it half closed for good",
        "dispatch/receiver/receiver.py",
        "            finally:  # whatever became of them: it may be entered again\n",
        "            except ZeroDivisionError:\n                pass\n            else:\n",
        tests=(V + "test_lifespans.py::test_a_close_whose_store_fails_tells_and_is_closed",),
    ),
    Mutant(
        "receiver: a close that is cut off during its drain leaves the store open",
        "dispatch/receiver/receiver.py",
        "            await self._deliveries.drain(drain_s)\n        finally:\n",
        "            await self._deliveries.drain(drain_s)\n        except ZeroDivisionError:\n            pass\n"
        "        else:\n",
        tests=(
            V + "test_lifespans.py::test_a_close_that_is_cut_off_ends_its_handlers_and_may_be_entered_again",
            "tests/actors/testing/lab/test_crash_of_a_lab.py::"
            "test_a_global_app_crashes_in_the_midst_of_a_handler_and_serves_the_next_lab",
        ),
    ),
    Mutant(
        "receiver: a close that is cut off leaves handlers at work",
        "dispatch/receiver/deliveries.py",
        "        finally:  # cut off, too: they give up their claims before the store is closed\n",
        "        except ZeroDivisionError:\n            pass\n        else:\n",
        tests=(V + "test_lifespans.py::test_a_close_that_is_cut_off_ends_its_handlers_and_may_be_entered_again",),
    ),
    Mutant(
        "reading: a deadline is believed whatever it says",
        "dispatch/receiver/reading.py",
        "most = min(max(int(deadline) - sent_ms, 0), LONGEST_MS)",
        "most = max(int(deadline) - sent_ms, 0)",
        tests=(V + "test_receiver.py::test_a_deadline_is_believed_up_to_an_hour",),
    ),
    Mutant(
        "reading: a deadline that has passed leaves less than no time",
        "dispatch/receiver/reading.py",
        "most = min(max(int(deadline) - sent_ms, 0), LONGEST_MS)",
        "most = min(int(deadline) - sent_ms, LONGEST_MS)",
        tests=(V + "test_receiver.py::test_a_deadline_is_believed_up_to_an_hour",),
    ),
    Mutant(
        "reading: headers that are not signed may say what they like",
        "dispatch/receiver/reading.py",
        "        if headers.get(header, value) != value:\n",
        "        if False:\n",
        tests=(V + "test_receiver.py::test_a_signed_body_that_contradicts_itself_is_refused",),
    ),
    Mutant(
        "reading: the body names another job than what is signed",
        "dispatch/receiver/reading.py",
        '    if webhook_id.rpartition(":")[0] != content.id:\n',
        "    if False:\n",
        tests=(V + "test_receiver.py::test_a_signed_body_that_contradicts_itself_is_refused",),
    ),
    Mutant(
        "reading: a callback of two targets, or of none, is taken",
        "dispatch/receiver/reading.py",
        "    if (content.function_path is None) == (content.workflow is None):\n",
        "    if False:\n",
        tests=(V + "test_receiver.py::test_a_signed_body_that_contradicts_itself_is_refused",),
    ),
    Mutant(
        "reading: the bound of what is ahead is the default, whatever was set",
        "dispatch/receiver/reading.py",
        ", max_ahead_s=bounds.max_ahead_s\n",
        "\n",
        tests=(V + "test_receiver.py::test_a_callback_is_good_within_the_bounds_of_its_timestamp",),
    ),
    Mutant(
        "reading: secrets that have changed are not read again",
        "dispatch/receiver/reading.py",
        "if self._signer is None or given != self._last:",
        "if self._signer is None:",
        tests=(V + "test_receiver.py::test_secrets_rotate_without_a_restart_and_without_a_refusal",),
    ),
    Mutant(
        "dedup: what is said to be done is not synced",
        "dispatch/receiver/sqlite_dedup.py",
        'db.execute("PRAGMA synchronous = FULL")',
        'db.execute("PRAGMA synchronous = NORMAL")',
        tests=(V + "test_dedup.py::test_what_is_said_to_be_done_is_on_the_disk",),
    ),
    Mutant(
        "dedup: work that goes on is pruned",
        "dispatch/receiver/sqlite_dedup.py",
        "AND NOT (state = {State.RUNNING.value} AND until_ms > ?)",
        "AND NOT (state = -{State.RUNNING.value} AND until_ms > ?)",
        tests=(V + "test_dedup.py::test_a_file_is_pruned_by_what_comes_in",),
    ),
    Mutant(
        "dedup: what is older than its retention counts",
        "dispatch/receiver/sqlite_dedup.py",
        "        return None if is_forgotten(row, now_ms, self._retention_ms) else row\n",
        "        return row\n",
        tests=(V + "test_dedup.py::test_a_file_forgets_at_its_retention_what_is_not_pruned_yet",),
    ),
    Mutant(
        "dedup: a run has the answer of another one",
        "dispatch/receiver/sqlite_dedup.py",
        "WHERE webhook_id = ? AND lease = ?",
        "WHERE webhook_id = ? AND lease >= substr(?, 1, 0)",
        tests=(V + "test_kept_answers.py::test_a_file_of_an_older_version_goes_on_and_both_versions_may_share_it",),
    ),
    Mutant(
        "dedup: a forked process uses the connection of its parent",
        "dispatch/receiver/sqlite_dedup.py",
        "if self._file is None or self._file.pid != os.getpid():",
        "if self._file is None:",
        tests=(V + "test_dedup.py::test_a_fork_opens_the_file_anew",),
        may_hang=True,
    ),
    Mutant(
        "dedup: the right to write is taken after reading",
        "dispatch/receiver/sqlite_dedup.py",
        '    db.execute("BEGIN IMMEDIATE")\n',
        '    db.execute("BEGIN")\n',
        tests=(V + "test_dedup.py::test_the_right_to_write_is_taken_before_anything_is_read",),
    ),
    Mutant(
        "dedup: everybody may read the file",
        "dispatch/receiver/sqlite_dedup.py",
        "        _make_private(self.path)\n",
        "",
        tests=(V + "test_dedup.py::test_a_new_file_is_for_its_owner_only_and_one_that_is_there_keeps_its_rights",),
    ),
    Mutant(
        "dedup: a cancelled call leaves its work in the middle",
        "dispatch/receiver/sqlite_dedup.py",
        "    while not future.done():\n        with suppress(asyncio.CancelledError):\n"
        "            await asyncio.wait([future])\n",
        "    await asyncio.wait([future])\n",
        tests=(V + "test_dedup.py::test_a_cancelled_call_is_made_to_its_end",),
    ),
    Mutant(
        "views: a transaction of Django's is around the handlers",
        "dispatch/receiver/views.py",
        "    marks._non_atomic_requests = _EveryDatabase()\n",
        "",
        tests=(V + "test_faces.py::test_a_failed_handler_s_writes_are_not_committed_by_django_for_its_answer",),
    ),
    Mutant(
        "views: of a WSGI body whose end cannot be seen all is read",
        "dispatch/receiver/views.py",
        'limit + 1 if environ.get("wsgi.input_terminated") else 0',
        "limit + 1",
        tests=(V + "test_faces.py::test_of_a_wsgi_body_without_a_length_no_more_is_read_than_may_be",),
    ),
    Mutant(
        "views: the blocking view of Django serves under ASGI",
        "dispatch/receiver/views.py",
        'if hasattr(request, "scope"):',
        "if False:",
        tests=(V + "test_faces.py::test_the_blocking_view_of_django_refuses_an_app_under_asgi",),
    ),
    Mutant(
        "blocking: plain functions run on a thread of the receiver's",
        "dispatch/receiver/receiver.py",
        "await self._handlers.call(found, job, threads)",
        "await self._handlers.call(found, job)",
        tests=(V + "test_faces.py::test_a_plain_function_runs_on_the_thread_of_its_request",),
    ),
    Mutant(
        "blocking: a close does not wait for handlers of callers that block",
        "dispatch/receiver/deliveries.py",
        "        self.running.add(task)\n",
        "",
        tests=(V + "test_blocking.py::test_an_app_that_awaits_closes_what_blocks_too",),
    ),
    Mutant(
        "blocking: a forked process waits for the loop of its parent",
        "dispatch/receiver/blocking.py",
        "return self._loop is not None and self._process == os.getpid()",
        "return self._loop is not None",
        tests=(V + "test_blocking.py::test_a_forked_process_has_a_loop_of_its_own",),
    ),
    Mutant(
        "blocking: an interrupted handler keeps its job",
        "dispatch/receiver/receiver.py",
        "            if threads is not None:  # raised on a caller's thread: this loop goes on\n"
        "                await self._released(job, _stopped())\n",
        "",
        tests=(V + "test_blocking.py::test_ctrl_c_ends_the_caller_and_gives_the_job_back",),
    ),
    Mutant(
        "blocking: a caller that is ended leaves its delivery behind",
        "dispatch/receiver/blocking.py",
        "            answer.cancel()\n            raise\n",
        "            raise\n",
        tests=(V + "test_blocking.py::test_a_caller_that_is_ended_while_it_waits_gives_the_job_back",),
        may_hang=True,
    ),
)
