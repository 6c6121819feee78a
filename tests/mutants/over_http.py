"""Breakages of what workers and apps far from their host send, and of how a server answers them."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

P = "tests/cli/test_plain_requests.py::"
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
        "actors/client/queues.py",
        "wait_s = wait_ms / 1000",
        "wait_s = 0.0",
        tests=(W + "test_a_claim_may_wait_for_longer_than_an_answer_may_take",),
    ),
    Mutant(
        "remote: jobs that come just after the claim was cancelled are lost",
        "actors/client/queues.py",
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
    Mutant(
        "http: who a header stood for is kept though the tokens are others",
        "actors/http/access.py",
        "        if self._known_of is not tokens:",
        "        if not self._known:",
        tests=("tests/http/test_rotation.py::test_a_token_that_is_taken_away_opens_nothing_with_the_next_request",),
    ),
    Mutant(
        "http: the first of two tokens counts",
        "actors/http/access.py",
        'if len(given) == 1 else b""',
        'if given else b""',
        tests=("tests/http/test_incoming.py::test_a_header_that_was_good_once_opens_nothing_beside_another",),
    ),
    Mutant(
        "http: middleware is passed by",
        "actors/http/app.py",
        "match is Match.NONE or self.user_middleware",
        "match is Match.NONE",
        tests=("tests/http/test_incoming.py::test_middleware_that_somebody_adds_sees_every_request",),
    ),
    Mutant(
        "http: who waits for a body is not told that its time is over",
        "actors/http/body.py",
        "pending = self._receiving.throw(error)",
        "raise",
        tests=("tests/http/test_incoming.py::test_a_deadline_ends_the_wait_and_what_waits_is_told",),
    ),
    Mutant(
        "served: a request is read at once though it names no host",
        "src/tocsin/cli/plain_requests.py",
        "    if hosts != 1 or ",
        "    if ",
        tests=(P + "test_what_is_unusual_is_left_to_h11",),
    ),
    Mutant(
        "served: the last of two lengths counts",
        "src/tocsin/cli/plain_requests.py",
        "if length is not None or ",
        "if ",
        tests=(P + "test_what_is_unusual_is_left_to_h11",),
    ),
    Mutant(
        "served: what comes behind an answer that h11 writes overtakes what came before",
        "src/tocsin/cli/connections.py",
        "(self._plain.plain or self._behind)",
        "self._plain.plain",
        tests=(P + "test_what_comes_while_an_answer_is_in_h11_waits_behind_what_came_before",),
    ),
    Mutant(
        "served: what comes behind an answer is forgotten",
        "src/tocsin/cli/connections.py",
        "            self.data_received(behind)\n",
        "            del behind\n",
        tests=(P + "test_what_comes_while_a_request_is_answered_waits_its_turn",),
    ),
    Mutant(
        "served: a server that stops keeps the connection",
        "src/tocsin/cli/plain_requests.py",
        " or not self.keep_alive:\n",
        ":\n",
        tests=(P + "test_a_server_that_stops_answers_and_closes",),
    ),
    Mutant(
        "served: a header may end its line and begin another",
        "src/tocsin/cli/plain_requests.py",
        'and head.count(b"\\n") == lines and head.count(b"\\r") == lines',
        "",
        tests=(P + "test_an_answer_is_written_as_h11_writes_it",),
    ),
    Mutant(
        "served: headers that an app adds stay for the next request",
        "src/tocsin/cli/connections.py",
        "head.headers.copy()",
        "head.headers",
        tests=(P + "test_headers_that_an_app_changes_are_changed_for_one_request",),
    ),
    Mutant(
        "serving: the service manager is not told of a stop",
        "src/tocsin/cli/serving.py",
        '        tell("STOPPING=1")\n',
        "",
        tests=("tests/cli/test_service_manager.py::test_it_is_told_that_the_server_serves_and_that_it_stops",),
    ),
    Mutant(
        "serving: an abstract socket of a service manager is taken for a file",
        "src/tocsin/cli/service_manager.py",
        '"\\0" + address[1:] if address.startswith("@") else address',
        "address",
        tests=("tests/cli/test_service_manager.py::test_its_socket_may_be_abstract",),
    ),
)
