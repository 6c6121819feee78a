"""`tocsin undo`, and what bulk actions say of it: within ten minutes they can be taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.failure import Refused
from tocsin.cli.output import emit, plural
from tocsin.cli.words import printable, say

REASONS: Final = {
    "running": "ran when they were cancelled",
    "id_taken": "have ids that other jobs took",
    "started": "have started since",
    "gone": "are gone",
    "changed": "were changed since",
}


def say_undo(answer: Mapping[str, Any], action_id: str | None) -> None:
    """Say how to undo what was just done, or that nobody can."""
    if action_id is None:
        return
    if "undoUntil" in answer or "redriveId" in answer:
        say(f"undo within ten minutes: tocsin undo {printable(action_id)}")
    else:
        say(f"action {printable(action_id)}: it was too much to be undone")


@click.command()
@click.argument("id")
@client_command
def undo(connection: Connection, /, id: str) -> None:
    """Undo a bulk action of the last ten minutes.

    ID is what the action printed, and what `tocsin audit` lists: of cancel-all, dead cancel-all, dead retry-all,
    pools set, or of another undo.
    """
    answer = connection.post("/undo", {"actionId": id})
    if connection.as_json:
        emit(answer)
    if not answer["restored"]:
        raise Refused(f"nothing of action {id!r} could be put back{_left(answer)}")
    if connection.as_json:
        return
    say(f"put back {answer['restored']:,} of {plural(answer['matched'], 'change')}{_left(answer)}")
    say_undo(answer, answer["actionId"])


def _left(answer: Mapping[str, Any]) -> str:
    skipped = answer.get("skipped", {})
    return "".join(f"; {count:,} {REASONS.get(reason, reason)}" for reason, count in skipped.items())
