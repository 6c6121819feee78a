"""Read a crontab: which of its lines are schedules, and why the others are none. Asks no server."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, Final

VARIABLE: Final = re.compile(r"""\s*["']?(?P<name>[A-Za-z_]\w*)["']?\s*=\s*(?P<value>.*)""")
ZONE: Final = "CRON_TZ"
REBOOT: Final = "@reboot"
FIELDS: Final = 5
INTERPRETER: Final = re.compile(r"(?:python|perl|ruby|node|php|bash|sh|zsh)[\d.]*")
"""Programs that run the script which is their first argument: that one gives the path its name."""
NAME_LENGTH: Final = 40
WHY_VARIABLE: Final = {
    "MAILTO": "no output is mailed: look at `tocsin history` and `tocsin dead ls`",
    "MAILFROM": "no output is mailed: look at `tocsin history` and `tocsin dead ls`",
    "RANDOM_DELAY": "give the schedule a jitter: tocsin schedules put --jitter",
}
WHY_OTHER_VARIABLE: Final = "variables are not taken along: set it where the command runs"
WHY_REBOOT: Final = "it has no time: start the command with your app or your system"
WHY_PERCENT: Final = (
    r"in cron the text behind % is the command's input: put it into a script, or write \% for a plain %"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line that becomes a schedule."""

    line: int
    name: str
    cron: str
    timezone: str
    path: str
    args: dict[str, str]

    def definition(self, queue: str | None, max_retries: int) -> dict[str, Any]:
        """Return it as the server takes it in a set."""
        rule = {"name": self.name, "cron": self.cron, "timezone": self.timezone}
        pulled = {} if queue is None else {"queue": queue}
        retry = {"maxRetries": max_retries}
        return {**rule, "functionPath": self.path, "args": self.args, "retry": retry, **pulled}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A line that becomes none, and why. `job`: cron would run it, so somebody may miss it."""

    line: int
    text: str
    why: str
    job: bool = True


@dataclass(frozen=True, slots=True)
class Crontab:
    """The lines of a file, by what became of them; blank lines and comments are nowhere."""

    entries: Sequence[Entry]
    left_out: Sequence[LeftOut]


def read(text: str, *, prefix: str, timezone: str | None, system: bool = False) -> Crontab:
    """Read the lines of a crontab; with `system` each names a user before its command, as in /etc/crontab.

    Times are on the clock of `timezone`, of a line `CRON_TZ=` above, or of UTC, in this order.
    """
    entries: list[Entry] = []
    left_out: list[LeftOut] = []
    zone = timezone or "UTC"
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        variable = VARIABLE.fullmatch(line)
        if not line or line.startswith("#"):
            continue
        if variable and variable["name"] == ZONE:
            zone = timezone or variable["value"].strip("\"'")
        elif variable:
            left_out.append(LeftOut(number, line, WHY_VARIABLE.get(variable["name"], WHY_OTHER_VARIABLE), job=False))
        else:
            one = _entry(number, line, prefix, zone, system)
            if isinstance(one, LeftOut):
                left_out.append(one)
            else:
                entries.append(one)
    return Crontab(_named(entries), left_out)


def _entry(number: int, line: str, prefix: str, zone: str, system: bool) -> Entry | LeftOut:
    from tocsin.actors.cron.rule import Rule
    from tocsin.errors import InvalidCronError, UnknownTimezoneError

    words = 1 if line.startswith("@") else FIELDS
    parts = line.split(None, words + system)
    cron, rest = " ".join(parts[:words]), parts[words:]
    if cron.lower() == REBOOT:
        return LeftOut(number, line, WHY_REBOOT)
    if len(rest) < 1 + system:
        return LeftOut(number, line, f"there is no {'user and ' if system else ''}command behind the time")
    command = rest[-1]
    if re.search(r"(?<!\\)%", command):
        return LeftOut(number, line, WHY_PERCENT)
    try:
        Rule(cron, zone)
    except (InvalidCronError, UnknownTimezoneError) as error:
        return LeftOut(number, line, error.message)
    args = {"command": command.replace(r"\%", "%"), **({"user": rest[0]} if system else {})}
    program = _program(args["command"])
    return Entry(number, program, cron, zone, prefix + program, args)


def _program(command: str) -> str:
    """Return what a command line runs, as a name: of the script where an interpreter runs one."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote is left open: the shell would say so when it runs
        words = command.split()
    if words[:1] == ["cd"] and "&&" in words:
        words = words[words.index("&&") + 1 :]
    words = [word for n, word in enumerate(words) if not _is_setting(words[: n + 1])]
    program = PurePosixPath(words[0]).name if words else command
    if INTERPRETER.fullmatch(program) and len(words) > 1:
        script = words[2] if words[1] == "-m" and len(words) > 2 else words[1]
        if not script.startswith("-"):
            program = PurePosixPath(script).name.removesuffix(PurePosixPath(script).suffix if "/" in script else "")
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", program).strip("-.")[:NAME_LENGTH] or "command"


def _is_setting(words: Sequence[str]) -> bool:
    """Return whether all words up to here set variables for the command, as in `LANG=C sort`."""
    return all(re.match(r"[A-Za-z_]\w*=", word) for word in words)


def _named(entries: Sequence[Entry]) -> list[Entry]:
    """Give each entry a name of its own, which stays when lines are moved or their times change."""
    seen: Counter[str] = Counter()
    named = []
    for one in entries:
        name = f"{one.name}-{sha256(one.args['command'].encode()).hexdigest()[:6]}"
        seen[name] += 1
        named.append(replace(one, name=name if seen[name] == 1 else f"{name}.{seen[name]}"))
    return named
