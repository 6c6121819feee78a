"""Breakages of what benchmarks measure and say: a figure that is wrong looks like any other."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

B = "tests/bench/"

BENCHMARKS = (
    Mutant(
        "bench: CPU of the store's threads counts as the loop's",
        "bench/cpu.py",
        "kind = LOOP if thread == pid else OTHERS",
        "kind = LOOP",
        tests=(B + "test_measuring.py::test_cpu_of_the_loop_and_of_other_threads_is_told_apart",),
    ),
    Mutant(
        "bench: processes of processes cost nothing",
        "bench/cpu.py",
        "    while more := {child for child, parent in parents.items() if parent in found} - found:\n",
        "    if more := {child for child, parent in parents.items() if parent == 0} - found:\n",
        tests=(B + "test_measuring.py::test_processes_of_processes_are_found_and_their_cpu_counted",),
    ),
    Mutant(
        "bench: what came twice counts once",
        "bench/receiver.py",
        "self.ids[found[1]] += 1",
        "self.ids[found[1]] = 1",
        tests=(B + "test_measuring.py::test_the_receiver_counts_what_came_twice_and_what_was_early",),
    ),
    Mutant(
        "bench: errors are counted as jobs",
        "bench/wire.py",
        "    if not 200 <= answer[0] <= 299:\n",
        "    if answer[0] < 100:\n",
        tests=(B + "test_measuring.py::test_anything_but_success_is_an_error",),
    ),
    Mutant(
        "bench: every round runs in the same order",
        "bench/suite.py",
        "return each if number % 2 else each[::-1]",
        "return each",
        tests=(B + "test_benchmark.py::test_each_second_round_is_run_backwards",),
    ),
    Mutant(
        "bench: the most is called the median",
        "bench/figures.py",
        "Summary(statistics.median(values), min(values), max(values)",
        "Summary(max(values), min(values), max(values)",
        tests=(
            B + "test_benchmark.py::"
            "test_a_figure_is_the_median_beside_its_limit_and_says_whether_it_reaches_what_is_asked",
        ),
    ),
    Mutant(
        "bench: what must be small is reached by being large",
        "bench/figures.py",
        "figure <= self.most)",
        "figure >= self.most)",
        tests=(
            B + "test_benchmark.py::"
            "test_a_figure_is_the_median_beside_its_limit_and_says_whether_it_reaches_what_is_asked",
        ),
    ),
    Mutant(
        "bench: the best of the others is the slowest",
        "bench/comparison.py",
        "best = (max if most else min)(",
        "best = (min if most else max)(",
        tests=(B + "test_comparison.py::test_the_page_compares_with_the_best_of_the_others",),
    ),
)
