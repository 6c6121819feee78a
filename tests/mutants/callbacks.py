"""Breakages of how callbacks are signed, and their answers read and judged."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

D = "tests/dispatch/"

CALLBACKS = (
    Mutant(
        "transport: a socket that the loop has closed behind its back keeps its number",
        "dispatch/lent_sockets.py",
        "_inode_of(number) != self._inode",
        "False",
        tests=(D + "test_lent_sockets.py::test_a_connection_that_was_reset_at_once_has_no_descriptor_left",),
    ),
    Mutant(
        "transport: a socket whose number was used again keeps it",
        "dispatch/lent_sockets.py",
        "_inode_of(number) != self._inode",
        "_inode_of(number) is None",
        tests=(D + "test_lent_sockets.py::test_a_number_that_was_closed_elsewhere_and_used_again_stays_open",),
    ),
    Mutant(
        "aiohttp: its sockets are not looked at",
        "dispatch/aiohttp_transport.py",
        "            for each in call.sockets:\n                each.disown_what_is_closed()\n",
        "",
        tests=(D + "test_lent_sockets.py::test_a_connection_that_was_reset_at_once_has_no_descriptor_left",),
    ),
    Mutant(
        "transport: what has answered on a connection may speak TLS",
        "dispatch/builtin_transport.py",
        'url if connection is None else ""',
        "url",
        tests=(
            "tests/dispatch/test_builtin_transport.py::"
            "test_what_has_served_on_a_connection_and_hangs_up_is_not_said_to_speak_tls",
        ),
    ),
    Mutant(
        "signing: a comparison tells where two signatures differ",
        "dispatch/signing.py",
        "genuine |= hmac.compare_digest(digest, signature)",
        "genuine |= digest == signature",
        tests=(D + "test_signing.py::test_signatures_are_compared_in_a_time_that_tells_nothing",),
    ),
    Mutant(
        "signing: which secret fits can be told by the time",
        "dispatch/signing.py",
        "                genuine |= hmac.compare_digest(digest, signature)\n",
        "                genuine = genuine or hmac.compare_digest(digest, signature)\n",
        tests=(D + "test_signing.py::test_all_secrets_are_compared_whichever_fits",),
    ),
    Mutant(
        "signing: an id may hold the delimiter of what is signed",
        "dispatch/signing.py",
        '        if "." in message_id:\n',
        "        if False:\n",
        tests=(D + "test_signing.py::test_an_id_with_the_delimiter_is_neither_signed_nor_verified",),
    ),
    Mutant(
        "signing: only the first secret verifies",
        "dispatch/signing.py",
        "in self._digests(message_id, stamp.encode(), body):",
        "in self._digests(message_id, stamp.encode(), body)[:1]:",
        tests=(D + "test_signing.py::test_a_receiver_with_both_secrets_accepts_a_sender_of_either",),
    ),
    Mutant(
        "signing: a timestamp may be any time ahead",
        "dispatch/signing.py",
        "        if age_s < -max_ahead_s:\n",
        "        if False:\n",
        tests=(D + "test_signing.py::test_more_is_a_replay_or_a_wrong_clock",),
    ),
    Mutant(
        "signing: a clock that tells no time verifies all",
        "dispatch/signing.py",
        "        if not age_s <= max_age_s:",
        "        if age_s > max_age_s:",
        tests=(D + "test_signing.py::test_a_clock_that_tells_no_time_verifies_nothing",),
    ),
    Mutant(
        "signing: a signature of another version counts",
        "dispatch/signing.py",
        'if version == "v1" and (signature',
        "if (signature",
        tests=(D + "test_signing.py::test_a_malformed_signature_is_refused",),
    ),
    Mutant(
        "signing: the second secret does not sign",
        "dispatch/signing.py",
        "b2a_base64(digest, newline=False).decode() for digest in digests])",
        "b2a_base64(digest, newline=False).decode() for digest in digests[:1]])",
        tests=(D + "test_signing.py::test_every_active_secret_signs_the_first_one_first",),
    ),
    Mutant(
        "secrets: one in quotes is taken",
        "dispatch/secret.py",
        "    if bare.startswith(tuple(QUOTES)):\n",
        "    if False:\n",
        tests=(D + "test_secret.py::test_a_mangled_secret_is_refused_at_every_door_by_what_was_found",),
    ),
    Mutant(
        "certificates: the system's authorities are forgotten",
        "dispatch/certificates.py",
        "    context = ssl.create_default_context()\n",
        "    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n",
        tests=(D + "test_certificates.py::test_the_system_s_authorities_stay",),
    ),
    Mutant(
        "answers: a body over its limit is a fault",
        "dispatch/answer_reader.py",
        "            self.answer = Answer(self._status, self._headers, bytes(self._body), cut=True)\n",
        '            raise Fault("its body is too long")\n',
        tests=(D + "test_answer_reader.py::test_a_body_is_held_up_to_its_limit_only",),
    ),
    Mutant(
        "answers: a connection with the rest of a body on it is used again",
        "dispatch/answer_reader.py",
        "            self.answer = Answer(self._status, self._headers, bytes(self._body), cut=True)\n",
        "            self.answer = Answer(self._status, self._headers, bytes(self._body), cut=True)\n"
        "            self.reusable = self._keeps_open\n",
        tests=(
            D + "test_answer_reader.py::test_a_connection_is_used_again_only_where_nothing_of_the_answer_can_follow",
        ),
    ),
    Mutant(
        "answers: of several lengths of a lease the shortest counts",
        "dispatch/answer_contents.py",
        "max(max(lengths), LEASE_MIN_MS)",
        "max(min(lengths), LEASE_MIN_MS)",
        tests=(D + "test_outcome.py::test_a_lease_is_as_long_as_the_longest_that_was_said",),
    ),
    Mutant(
        "answers: a body that is not JSON is a result",
        "dispatch/outcome.py",
        "    elif body and not is_json(body):\n",
        "    elif False:\n",
        tests=(D + "test_outcome.py::test_a_body_that_is_not_json_is_no_result_and_the_history_says_so",),
    ),
    Mutant(
        "answers: the beginning of a body is the result",
        "dispatch/outcome.py",
        "    elif answer.cut:\n",
        "    elif False:\n",
        tests=(D + "test_outcome.py::test_a_body_that_was_cut_off_is_no_result_and_the_history_says_so",),
    ),
    Mutant(
        "in process: the app is called in the context of who scheduled",
        "dispatch/asgi_transport.py",
        "create_task(run, context=Context())",
        "create_task(run)",
        tests=("tests/dispatch/test_asgi_transport.py::test_the_app_does_not_see_the_context_of_who_scheduled",),
    ),
)
