"""Breakages of the site's checks, and of the import of a crontab."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

D = "tests/docs/"
C = "tests/cli/test_import_crontab.py::"

PAGES = (
    Mutant(
        "site: a page may load from another host",
        "scripts/site/built.py",
        "            if urlsplit(address).netloc:\n",
        "            if False:\n",
        tests=(D + "test_site.py::test_what_is_wrong_with_a_built_page_is_told",),
    ),
    Mutant(
        "site: an anchor may lead nowhere",
        "scripts/site/built.py",
        "            elif target in pages and unquote",
        "            elif not target.exists() and unquote",
        tests=(D + "test_site.py::test_what_is_wrong_with_a_built_page_is_told",),
    ),
    Mutant(
        "site: links in code are rewritten",
        "scripts/site/markdown.py",
        "            if any(start <= match",
        "            if not any(start <= match",
        tests=(D + "test_site.py::test_links_are_read_outside_of_code_only",),
    ),
    Mutant(
        "site: a command's unknown option passes",
        D + "test_other_blocks.py",
        "    parser.parse_args(",
        "    parser.ignore_unknown_options = True\n    parser.parse_args(",
        tests=(D + "test_other_blocks.py::test_a_command_that_is_not_there_is_noticed",),
    ),
    Mutant(
        "crontab: a command loses what stands behind its percent",
        "src/tocsin/cli/crontab.py",
        """    if re.search(r"(?<!\\\\)%", command):\n""",
        "    if False:\n",
        tests=(C + "test_what_cannot_be_taken_says_why",),
    ),
    Mutant(
        "crontab: a name is counted, not made of the command",
        "src/tocsin/cli/crontab.py",
        "sha256(one.args['command'].encode()).hexdigest()[:6]",
        "len(named)",
        tests=(C + "test_names_stay_when_lines_move_and_times_change",),
    ),
    Mutant(
        "crontab: the same command twice is one name",
        "src/tocsin/cli/crontab.py",
        "name=name if seen[name] == 1 else",
        "name=name if seen[name] else",
        tests=(C + "test_the_same_command_twice_is_two_schedules",),
    ),
    Mutant(
        "crontab: CRON_TZ goes before the option",
        "src/tocsin/cli/crontab.py",
        'zone = timezone or variable["value"]',
        'zone = variable["value"]',
        tests=(C + "test_a_zone_counts_from_its_line_on_and_the_option_counts_for_all",),
    ),
    Mutant(
        "crontab: a dry run puts",
        "src/tocsin/cli/importing.py",
        "{} if dry_run else connection",
        "connection",
        tests=(C + "test_a_dry_run_asks_nobody",),
    ),
    Mutant(
        "crontab: a line that is left out goes unsaid in the exit code",
        "src/tocsin/cli/importing.py",
        "    if jobs:\n",
        "    if False:\n",
        tests=(C + "test_a_dry_run_asks_nobody",),
    ),
)
