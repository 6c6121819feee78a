"""Breakages of what workers and apps far from their host send, and of how a server answers them."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

W = "tests/dispatch/worker/test_ways_to_a_server.py::"

OVER_HTTP = (
    Mutant(
        "remote: the beginning of an answer is taken for all of it",
        "dispatch/server_client.py",
        "        if answer.cut:",
        "        if False:",
        tests=(W + "test_an_answer_that_was_cut_is_none_even_where_its_beginning_is_whole",),
    ),
    Mutant(
        "remote: a claim has no longer than other requests",
        "dispatch/worker/remote.py",
        "timeout_s = wait_ms / 1000 + self._timeout_s",
        "timeout_s = self._timeout_s",
        tests=(W + "test_a_claim_may_wait_for_longer_than_an_answer_may_take",),
    ),
    Mutant(
        "remote: jobs that come just after the claim was cancelled are lost",
        "dispatch/worker/remote.py",
        "            await asyncio.sleep(0)  # an answer",
        "            pass  # an answer",
        tests=(W + "test_jobs_whose_answer_comes_just_after_the_claim_was_cancelled_are_given_back",),
    ),
    Mutant(
        "remote: what a worker posts is trusted by the system's authorities only",
        "dispatch/server_client.py",
        "BuiltinTransport(ssl_context=self._ssl_context)",
        "BuiltinTransport()",
        tests=("tests/dispatch/test_certificates.py::test_what_a_worker_posts_is_trusted_by_a_ca_file_too",),
    ),
    Mutant(
        "remote: a packed answer is read as it is",
        "dispatch/server_client.py",
        "        if is_packed(answer.headers):",
        "        if False:",
        tests=(W + "test_a_compressed_answer_is_none_where_none_was_asked_for",),
    ),
)
