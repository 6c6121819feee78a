"""Which zones there are: IANA names as they are written, and never another zone instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tocsin.actors.cron.zones import Zone
from tocsin.errors import UnknownTimezoneError

NO_NAMES = [
    "",
    " ",
    "Europe/",
    "/Europe/Berlin",
    "../../etc/passwd",
    "Europe/../UTC",
    "localtime",
    "posixrules",
    "Factory",
]
WITHOUT_DATABASE = """
import json, sys
sys.modules["tzdata"] = None
from tocsin.actors.cron.rule import Rule
from tocsin.errors import UnknownTimezoneError

said = {}
for zone in json.loads(sys.argv[1]):
    try:
        said[zone] = Rule("0 12 * * *", zone).next_ms(0)
    except UnknownTimezoneError as error:
        said[zone] = f"{error.code}: {error}"
print(json.dumps(said))
"""


@pytest.mark.parametrize("name", [*NO_NAMES, "Europe/Berlin\n", "Europe/Berlin\x00", "Ｅurope/Berlin", "x" * 65])
def test_what_is_no_name_is_refused(name: str) -> None:
    assert refusal(name).startswith("timezone must be an IANA name like Europe/Berlin, not ")


@pytest.mark.parametrize("name", [None, 5, pytest.param(10**5000, id="huge"), b"UTC", ["UTC"]])
def test_what_is_no_text_is_refused(name: Any) -> None:
    assert "timezone must be an IANA name" in refusal(name)


@pytest.mark.parametrize("name", ["Europe/Berln", "Mars/Phobos", "UTC+1", "zone.tab", "posix/Europe/Berlin", "tzdata"])
def test_unknown_zones_are_refused(name: str) -> None:
    assert repr(name) in refusal(name)


@pytest.mark.parametrize("name", ["europe/berlin", "EUROPE/BERLIN", "utc", "america/new_york"])
def test_names_are_written_as_they_are_written(name: str) -> None:
    assert "it is written" in refusal(name)


def test_unknown_zones_have_their_own_code() -> None:
    assert UnknownTimezoneError.code == "UNKNOWN_TIMEZONE"
    assert UnknownTimezoneError.status == 400


@pytest.mark.parametrize("name", ["UTC", "Etc/UTC", "Etc/GMT+5", "America/Argentina/Buenos_Aires", "US/Pacific", "EST"])
def test_zones_are_known(name: str) -> None:
    assert Zone(name).name == name


def test_without_a_database_there_is_utc_and_nothing_becomes_utc() -> None:
    zones = ["UTC", "Europe/Berlin", *NO_NAMES]

    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_DATABASE, json.dumps(zones)],
        env={**os.environ, "PYTHONTZPATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    said = json.loads(run.stdout)
    assert said.pop("UTC") == 12 * 3_600_000
    assert said["Europe/Berlin"] == (
        "UNKNOWN_TIMEZONE: timezone 'Europe/Berlin': this machine has no time zones, install the package tzdata"
    )
    assert all(what.startswith("UNKNOWN_TIMEZONE: ") for what in said.values())


def refusal(name: Any) -> str:
    with pytest.raises(UnknownTimezoneError) as caught:
        Zone(name)
    return caught.value.message
