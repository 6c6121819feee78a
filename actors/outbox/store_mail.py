"""A row for the mail of a store that lies in the app's own database: its hosts read it there, and no drain is needed.

The mail is a call as one host makes it of another: here `jobs.submit_once`, with a key by which it is done once however
often it is read. Nobody waits for its answer, so a job whose id is taken is kept as a dead letter.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from tocsin.actors.outbox.statements import Statement
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.transitions.kept_answers import OneAnswer
from tocsin.actors.sharing.operations import OPERATIONS, Asked
from tocsin.storage.ownership.engine import slot_of


def mail(schema: str, instance: str, new: NewJob, row: str, op: int) -> Statement:
    """Return the insert of one job. `row` names it among dead letters, if it comes to that."""
    if not new.chosen:  # nobody else has such an id: who has it is this job, that was brought before
        new = replace(new, chosen=True, on_conflict="keep")
    key = hashlib.blake2b(f"outbox {row}".encode(), digest_size=16).digest()
    call = OPERATIONS["jobs.submit_once"].encode([[replace(new, parked_as=row)], key, key, OneAnswer()])
    body = msgspec.json.encode(Asked("jobs.submit_once", instance, False, msgspec.Raw(call)))
    actor = str(actor_of(instance))
    return Statement(
        f"INSERT INTO {schema}.mail (slot, op, actor, body) VALUES (:slot, CAST(:op AS uuid), :actor, :body)",
        {"slot": slot_of(actor), "op": f"{op:032x}", "actor": actor, "body": body},
    )


def hint(schema: str) -> Statement:
    """Return the statement that tells all hosts of a store of new mail."""
    return Statement("SELECT pg_notify(:channel, '')", {"channel": f"{schema}_hosts"})
