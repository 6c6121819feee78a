"""Breakages of callbacks to the URLs of jobs: of the list of them, and of the check of each address."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

CHECKED = "tests/dispatch/test_checked_connections.py::"
OF_JOBS = "tests/actors/scheduler/test_urls_of_jobs.py::"
LISTED = "tests/dispatch/test_url_list.py::"

URLS = (
    Mutant(
        "urls: the built-in transport connects wherever a name leads",
        "dispatch/builtin_transport.py",
        "        if self._addresses is not None:\n            self._addresses.check(host, map(address_of, found))\n",
        "",
        tests=(CHECKED + "test_no_spelling_of_this_machine_is_connected_to",),
    ),
    Mutant(
        "urls: httpx connects wherever a name leads",
        "dispatch/names.py",
        "                if judge is not None:\n                    judge.check(host, found)\n",
        "",
        tests=(CHECKED + "test_no_spelling_of_this_machine_is_connected_to",),
    ),
    Mutant(
        "urls: aiohttp connects to one good address of a name that has a bad one, too",
        "dispatch/aiohttp_transport.py",
        "        if self._addresses is not None:\n            self._addresses.check(host, map(address_of, found))\n",
        "",
        tests=(CHECKED + "test_a_name_with_one_bad_address_is_called_at_none",),
    ),
    Mutant(
        "urls: aiohttp connects to addresses that are written as such",
        "dispatch/aiohttp_transport.py",
        "        addresses.check(to, [to])\n",
        "        pass\n",
        tests=(CHECKED + "test_no_spelling_of_this_machine_is_connected_to",),
    ),
    Mutant(
        "urls: a name is looked up again after its address was checked",
        "dispatch/builtin_transport.py",
        "        with lent(await first_connected(found, ",
        "        with lent(await first_connected(await addresses_of(host, port), ",
        tests=(CHECKED + "test_a_name_that_changes_after_the_check_is_called_where_it_was_checked",),
    ),
    Mutant(
        "urls: an IPv4 address inside an IPv6 one is not seen",
        "dispatch/addresses.py",
        "        inner = embedded_in(one)\n",
        "        inner = None\n",
        tests=("tests/dispatch/test_addresses.py::test_others_are_not_and_the_fault_says_what_they_are",),
    ),
    Mutant(
        "urls: a translator that is permitted leads anywhere",
        "dispatch/addresses.py",
        'return self._fault(inner) if permitted else "an',
        'return None if permitted else "an',
        tests=(
            "tests/dispatch/test_addresses.py::"
            "test_an_address_inside_another_is_judged_as_itself_even_where_the_outer_one_is_permitted",
        ),
    ),
    Mutant(
        "urls: an entry covers all paths that begin as its own does",
        "dispatch/url_list.py",
        '    below = entry.path if entry.path.endswith("/") else f"{entry.path}/"\n',
        "    below = entry.path\n",
        tests=(LISTED + "test_anything_else_is_refused_and_the_error_says_where_the_list_is",),
    ),
    Mutant(
        "urls: * stands for any number of labels",
        "dispatch/url_list.py",
        "        if not dot or rest != entry.host[len(ANY_LABEL) :] or not LABEL.fullmatch(first):\n",
        "        if not url.host.endswith(entry.host[1:]):\n",
        tests=(LISTED + "test_anything_else_is_refused_and_the_error_says_where_the_list_is",),
    ),
    Mutant(
        "urls: escaped slashes may stand in a path",
        "dispatch/url_list.py",
        "    if HIDDEN_SIGN.search(path):\n",
        "    if False:\n",
        tests=(LISTED + "test_what_two_readers_may_read_differently_is_no_url",),
    ),
    Mutant(
        "urls: the list is not asked when a job is scheduled",
        "actors/scheduler/client/job_checks.py",
        "        self.urls.check(url, name)\n",
        "        check_job_url(url, name)\n",
        tests=(OF_JOBS + "test_a_url_that_the_list_has_not_is_refused_at_the_call",),
    ),
    Mutant(
        "urls: the list is not asked before an attempt",
        "dispatch/url_dispatcher.py",
        "        if not self.urls.allows(url):\n",
        "        if False:\n",
        tests=(OF_JOBS + "test_a_job_whose_url_left_the_list_is_parked_unsent_and_goes_when_it_is_back",),
    ),
    Mutant(
        "urls: one that is not reached opens the circuit of all",
        "dispatch/url_dispatcher.py",
        "        return replace(outcome, verdict=Verdict.FAILED) if",
        "        return outcome if",
        tests=(OF_JOBS + "test_one_that_is_not_reached_is_charged_and_opens_no_circuit",),
    ),
    Mutant(
        "urls: the failures of others' receivers are the host's",
        "actors/scheduler/inflight/sending.py",
        "counts=gate.name != URL",
        "counts=True",
        tests=(OF_JOBS + "test_failures_of_others_receivers_are_not_the_hosts",),
    ),
    Mutant(
        "urls: their receivers are given the host's secrets",
        "actors/url_origin.py",
        "        return own or of_host\n",
        "        return of_host\n",
        tests=(OF_JOBS + "test_a_job_goes_to_its_url_signed_with_the_secrets_of_the_list_only",),
    ),
    Mutant(
        "urls: a host's transport for them checks no addresses",
        "actors/url_origin.py",
        ", addresses=Addresses(allowed.networks))",
        ")",
        tests=("tests/actors/test_url_connections.py::test_no_way_to_write_this_machine_leads_to_a_connection",),
    ),
)
