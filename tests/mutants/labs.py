"""Breakages of the lab: how time moves, whom it waits for, what it adopts, and what its readings refuse."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

L = "actors/testing/lab/"
T = "tests/actors/testing/lab/"

LABS = (
    Mutant(
        "lab: the dedup file of the app is used and pruned",
        L + "stores.py",
        'if self.kind == "own" or dedup in _ADOPTED:',
        "if True:",
        tests=(
            T + "test_dedup_files_of_a_lab.py::test_what_the_app_knows_of_real_deliveries_outlives_labs_in_the_future",
        ),
    ),
    Mutant(
        "lab: the dedup file of the app is not given back",
        L + "stores.py",
        "            dedup.move(path)\n",
        "            path.parent\n",
        tests=(
            T + "test_dedup_files_of_a_lab.py::test_what_the_app_knows_of_real_deliveries_outlives_labs_in_the_future",
        ),
    ),
    Mutant(
        "lab: a client that blocks waits for a loop that nobody runs",
        L + "own_thread.py",
        "        loop.run_until_complete(_ended(answer))\n",
        "        pass\n",
        tests=(T + "test_sync_lab.py::test_a_client_that_blocks_is_answered_in_the_thread_of_the_test",),
        may_hang=True,
    ),
    Mutant(
        "lab: a client may block the loop that is to answer it",
        L + "own_thread.py",
        "and _loop_runs():",
        "and False:",
        tests=(T + "test_sync_lab.py::test_a_client_that_blocks_the_loop_of_the_lab_is_refused_at_once",),
        may_hang=True,
    ),
    Mutant(
        "lab: a client with a transport of its own is taken for one that the lab answers",
        L + "own_thread.py",
        "client._server._transport is None or",
        "True or",
        tests=(T + "test_sync_lab.py::test_a_client_with_a_transport_of_its_own_is_left_alone",),
    ),
    Mutant(
        "outbox: a drain takes a target without batches",
        "actors/outbox/target.py",
        '        if _takes_batches(given.scheduler("default")):',
        "        if True:",
        tests=(T + "test_sync_lab.py::test_a_drain_refuses_a_wrong_target_when_it_is_made",),
    ),
    Mutant(
        "lab: time moves while a thread is at work",
        L + "loop_time.py",
        "        elif self._at_work():\n",
        "        elif False:\n",
        tests=(T + "test_time_of_a_lab.py::test_time_stands_still_while_a_function_works_in_a_thread",),
    ),
    Mutant(
        "lab: housekeeping rings in time",
        L + "loop_time.py",
        "        if is_housekeeping(task, callback):\n",
        "        if False:\n",
        tests=(T + "test_time_of_a_lab.py::test_a_worker_that_has_nothing_to_do_costs_nothing_over_a_year",),
        may_hang=True,
    ),
    Mutant(
        "lab: the loop keeps its own resolution",
        L + "loop_time.py",
        "self._resolution, loop._clock_resolution = loop._clock_resolution, RESOLUTION_S",
        "self._resolution = loop._clock_resolution",
        tests=(T + "test_time_of_a_lab.py::test_a_year_of_a_daily_schedule_follows_the_clocks_of_its_zone",),
        may_hang=True,
    ),
    Mutant(
        "lab: timers from before ring in virtual time",
        L + "loop_time.py",
        "        loop._scheduled.clear()\n",
        "        self._outer = []\n",
        tests=(
            T + "test_misuse_of_a_lab.py::test_timers_from_before_a_lab_keep_to_real_time_and_those_left_by_it_go_on",
        ),
    ),
    Mutant(
        "lab: time that nobody passes stands for ever",
        L + "loop_time.py",
        "                self._unattended = self._now + UNATTENDED_S\n",
        "                pass\n",
        tests=(
            T + "test_misuse_of_a_lab.py::"
            "test_a_test_that_waits_while_time_stands_still_goes_on_after_a_while_and_is_told",
        ),
        may_hang=True,
    ),
    Mutant(
        "lab: a wait returns before what is due has come to rest",
        L + "loop_time.py",
        "            if driver.target <= self._now and not driver.reached.done():",
        "            if not driver.reached.done():",
        tests=(T + "test_lab.py::test_without_an_app_callbacks_are_recorded",),
    ),
    Mutant(
        "lab: nobody is told that time has moved",
        L + "loop_time.py",
        "            self.jumps += 1\n            self._tell()\n",
        "            self.jumps += 1\n",
        tests=(T + "test_time_of_a_lab.py::test_what_follows_time_is_told_before_anything_runs",),
    ),
    Mutant(
        "lab: hosts are not given back",
        L + "hosts.py",
        "            self._give_back.pop()()\n",
        "            self._give_back.pop()\n",
        tests=(T + "test_lab.py::test_an_app_and_a_host_that_were_made_before_are_themselves_again_afterwards",),
    ),
    Mutant(
        "lab: a host shares its store with other processes",
        L + "hosts.py",
        '        self._replace(host, "_sharing", None)  # other processes have other labs\n',
        "",
        tests=(T + "test_lab.py::test_an_app_as_it_is_runs_days_in_virtual_time",),
    ),
    Mutant(
        "lab: a crash leaves the tasks of the app",
        L + "app_life.py",
        "                task.cancel()\n            await asyncio.sleep(0)\n",
        "                pass\n            return\n",
        tests=(T + "test_crash_of_a_lab.py::test_an_attempt_that_a_crash_ended_is_sent_again_when_its_lease_ends",),
    ),
    Mutant(
        "lab: ids are not in the order of their making",
        L + "hosts.py",
        "        number = next(self._numbers) % (1 << NUMBERED)\n",
        "        number = self._system.getrandbits(NUMBERED)\n",
        tests=(T + "test_lab.py::test_what_is_due_at_one_instant_runs_in_the_order_in_which_it_was_scheduled",),
    ),
    Mutant(
        "lab: a reading that nobody awaited is not told of",
        L + "reading.py",
        "    forgotten = [one.where for one in made if not one.awaited]\n",
        "    forgotten: list[str] = []\n",
        tests=(T + "test_misuse_of_a_lab.py::test_a_check_that_nobody_awaited_is_an_error_at_the_end",),
    ),
    Mutant(
        "fake scheduler: it runs what is due",
        "actors/testing/fake_scheduler.py",
        "catalog=self._catalog, dispatch=False,",
        "catalog=self._catalog,",
        tests=("tests/actors/testing/test_fake_scheduler.py::test_calls_are_noted_and_jobs_are_there_and_never_run",),
    ),
    Mutant(
        "fake scheduler: the first delay is that of the second failure",
        "actors/testing/fake_scheduler.py",
        "range(failures + 1, retry.max_retries + 1)",
        "range(failures + 2, retry.max_retries + 2)",
        tests=("tests/actors/testing/test_fake_scheduler.py::test_the_instants_of_attempts_are_those_of_a_host",),
    ),
    Mutant(
        "plugin: a lab that is left open passes",
        "src/tocsin/pytest_plugin.py",
        "    if open_ones := labs.unclosed():",
        "    if open_ones := 0:",
        tests=(
            "tests/test_pytest_plugin.py::"
            "test_with_pytest_asyncio_on_several_processes_and_a_lab_that_is_left_open_fails_its_test",
        ),
    ),
)
