"""`tocsin import crontab`: what it makes of each line of a crontab, and how it puts the set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.actors.cron.rule import Rule
from tocsin.actors.scheduler.schedules.definition import schedule_name
from tocsin.cli.crontab import Entry, read

from .conftest import Canned, Run
from .processes import tocsin_serve


def entries(text: str, *, prefix: str = "cron:", timezone: str | None = None, system: bool = False) -> list[Entry]:
    crontab = read(text, prefix=prefix, timezone=timezone, system=system)
    assert not [one for one in crontab.left_out if one.job]
    return list(crontab.entries)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("/usr/local/bin/report --all >/dev/null 2>&1", "report"),
        ("LANG=C TZ=UTC /usr/bin/sort x", "sort"),
        ("cd /srv/app && ./poll.sh", "poll.sh"),
        ("python3 /opt/jobs/clean.py --days 3", "clean"),
        ("/usr/bin/python3.11 -m app.sweep", "app.sweep"),
        ("bash -c 'sleep 1'", "bash"),
        ("it is 'open", "it"),
        ("[ -f /x ] && y", "command"),
    ],
)
def test_a_path_is_the_name_of_the_program(command: str, path: str) -> None:
    [entry] = entries(f"30 6 * * 1-5 {command}\n", prefix="old:")

    assert (entry.cron, entry.path, entry.args) == ("30 6 * * 1-5", f"old:{path}", {"command": command})


def test_names_stay_when_lines_move_and_times_change() -> None:
    before = entries("0 1 * * * report a\n0 2 * * * report b\n")
    after = entries("0 9 * * * report b\n# c\n@daily report a\n")

    assert [one.name for one in before] == [one.name for one in reversed(after)]
    assert len({one.name for one in before}) == 2


def test_the_same_command_twice_is_two_schedules() -> None:
    one, other = entries("0 1 * * * report\n0 2 * * * report\n")

    assert other.name == f"{one.name}.2"


def test_a_zone_counts_from_its_line_on_and_the_option_counts_for_all() -> None:
    text = "0 1 * * * a\nCRON_TZ = 'Asia/Tokyo'\n0 1 * * * b\n"

    assert [one.timezone for one in entries(text)] == ["UTC", "Asia/Tokyo"]
    assert [one.timezone for one in entries(text, timezone="Europe/Berlin")] == ["Europe/Berlin"] * 2


def test_a_percent_that_cron_would_pass_on_is_passed_on() -> None:
    [entry] = entries(r"0 1 * * * date +\%F")

    assert entry.args == {"command": "date +%F"}


def test_a_system_crontab_names_a_user() -> None:
    [entry] = entries("17 * * * * root cd / && run-parts /etc/cron.hourly", system=True)

    assert (entry.path, entry.args["user"]) == ("cron:run-parts", "root")


@pytest.mark.parametrize(
    ("line", "why", "job"),
    [
        ("@reboot agent", "it has no time", True),
        ('0 5 * * * date "+%F"', "input", True),
        ("61 * * * * x", "61 is not 0..59", True),
        ("0 0 30 2 * x", "never fires", True),
        ("~ 5 * * * x", "minute", True),
        ("5 5 * * *", "no command", True),
        ("@every_minute x", "@yearly", True),
        ("MAILTO=ops@example.org", "no output is mailed", False),
        ("PATH = /usr/bin", "not taken along", False),
    ],
)
def test_what_cannot_be_taken_says_why(line: str, why: str, job: bool) -> None:
    crontab = read(f"# first\n\n{line}\n", prefix="", timezone=None)

    [left] = crontab.left_out
    assert (left.line, left.text, left.job) == (3, line, job)
    assert why in left.why
    assert not crontab.entries


def test_an_unknown_zone_is_named() -> None:
    [left] = read("0 1 * * * x", prefix="", timezone="Mars/Olympus").left_out

    assert "Mars/Olympus" in left.why


@given(st.text(alphabet=st.sampled_from("*@%\\=0123456789 \t\n#abdilyACRON_TZ/'\"-,"), max_size=60))
def test_no_text_is_too_strange_and_what_is_taken_is_valid(text: str) -> None:
    crontab = read(text, prefix="", timezone=None)

    names = [schedule_name(f"crontab:{one.name}") for one in crontab.entries]
    assert len(set(names)) == len(names)
    for one in crontab.entries:
        Rule(one.cron, one.timezone)
    told = {one.line for one in crontab.entries} | {one.line for one in crontab.left_out}
    silent = [line.strip() for n, line in enumerate(text.splitlines(), 1) if n not in told]
    assert all(not line or line.startswith("#") or "CRON_TZ" in line for line in silent)


@pytest.fixture
def crontab(tmp_path: Path) -> str:
    (tmp_path / "crontab").write_text("MAILTO=x\n0 6 * * * report\n@reboot agent\n")
    return str(tmp_path / "crontab")


def test_a_dry_run_asks_nobody(run: Run, canned: Canned, crontab: str) -> None:
    shown = run("import", "crontab", crontab, "--dry-run")

    assert (shown.exit_code, canned.requests) == (1, [])
    assert "cron:report" in shown.stdout
    assert "1 schedule would be put" in shown.stderr
    assert "line 3 is left out: @reboot agent" in shown.stderr
    assert "1 line that cron runs was left out" in shown.stderr


def test_a_file_that_is_no_text_is_wrong_usage(run: Run, tmp_path: Path) -> None:
    (tmp_path / "crontab").write_bytes(b"0 6 * * * \xff\n")

    shown = run("import", "crontab", str(tmp_path / "crontab"), "--dry-run")
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "is not UTF-8" in shown.stderr


def test_a_set_is_put_twice_and_changed_once(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "crontab"
    with tocsin_serve("--insecure", cwd=tmp_path) as server:

        def put(text: str, *more: str) -> dict[str, Any]:
            file.write_text(text)
            done = run("import", "crontab", str(file), "--url", url, "--queue", "cron", "--json", *more)
            assert done.exit_code == 0, done.stderr
            answer: dict[str, Any] = json.loads(done.stdout)
            return answer

        def listed() -> dict[str, int]:
            lines = run("schedules", "ls", "--url", url, "--json").stdout.splitlines()
            return {one["name"]: one["revision"] for one in map(json.loads, lines)}

        url = server.url()
        assert put("0 5 * * * once\n", "--owner", "other")["schedules"][0]["retry"] == {"maxRetries": 0}
        assert put("0 5 * * * once\n", "--owner", "other", "--dry-run", "--max-retries", "3")["schedules"][0][
            "retry"
        ] == {"maxRetries": 3}
        assert run("schedules", "rm", "--url", url, *listed()).exit_code == 0
        put("0 6 * * * report\n0 7 * * * clean\n")
        first = listed()
        assert set(first.values()) == {1}
        assert put("0 7 * * * clean\n0 6 * * * report\n")["orphaned"] == []
        assert listed() == first
        report, clean = sorted(first, reverse=True)
        assert put("0 8 * * * report\n")["orphaned"] == [clean]
        assert listed() == {report: 2, clean: 1}
        assert put("0 8 * * * report\n", "--prune")["removed"] == [clean]
        assert listed() == {report: 2}
        assert server.stop() == 0
