"""Every command there is, taken from the command itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from tocsin.cli import main

HERE: Final = Path(__file__).parent
LOCAL = {
    "serve",
    "run",
    "worker",
    "demo",
    "keys new",
    "keys sign",
    "keys verify",
    "config show",
    "simulate",
    "check",
    "backup",
    "completion",
    "next",
    "move",
    "migrate",
    "cluster status",
    "cluster drain",
    "cluster release",
}
"""Those that talk to no server, or wait for one."""


def commands(group: click.Group = main, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Name, as it is typed behind `tocsin`, and command. Groups are left out."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


TREE = dict(commands())
CLIENTS = sorted(TREE.keys() - LOCAL)
CHANGING = frozenset({
    "schedule", "submit", "cancel", "reschedule", "cancel-all", "complete", "extend",
    "dead retry", "dead cancel", "dead retry-all", "dead cancel-all",
    "schedules put", "schedules register", "schedules pause", "schedules resume", "schedules trigger", "schedules rm",
    "schedules backfill",
    "import crontab", "instances pause", "instances resume", "instances set", "instances rm",
    "pools set", "pools rm", "pools free", "queues set", "groups open", "groups seal", "groups cancel",
    "clock new", "clock advance", "clock freeze", "undo",
})  # fmt: skip
"""Those that ask for a change, which a cluster may accept before it has an owner. An import is none."""


def arguments(command: click.Command) -> list[str]:
    """Something for every argument that is needed."""
    samples = {
        "span": "5m",
        "shell": "bash",
        "body": "-",
        "file": "-",
        "at": "2027-01-01T00:00:00Z",
        "jobs": str(HERE / "jobs.jsonl"),
        "definitions": str(HERE / "schedules.json"),
    }
    return [samples.get(each.name or "", "x") for each in command.params if isinstance(each, click.Argument)]


def needed(name: str) -> list[str]:
    """The options without which a command does not even ask."""
    return {
        "cancel-all": ["--all", "--yes"],
        "dead retry-all": ["--all", "--yes"],
        "changes": ["--frames", "1"],
        "dead cancel-all": ["--all", "--yes"],
        "pools set": ["--pause"],
        "queues set": ["--fair"],
        "reschedule": ["--in", "5m"],
        "schedules put": ["--every", "5m"],
        "schedules backfill": ["--start", "2026-01-01T00:00Z", "--end", "2026-02-01T00:00Z", "--yes"],
        "instances rm": ["--yes"],
        "instances set": ["--timeout", "5m"],
    }.get(name, [])
