"""`tocsin status`: the counts of one scheduler, and its pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.output import instant as shown_instant
from tocsin.cli.output import key_values, now_ms, put, span
from tocsin.cli.pools import MORE, print_pools
from tocsin.cli.words import say


def health_of(answer: Mapping[str, Any]) -> str | None:
    """Return the health with its reasons, a line each; without reasons for an older server."""
    reasons = [f"{one['message']} (for {span(max(now_ms() - one['since'], 0))})" for one in answer.get("reasons") or ()]
    colour = answer.get("health")
    return colour if not reasons else "\n".join([f"{colour}: {reasons[0]}", *reasons[1:]])


@click.command()
@client_command
def status(connection: Connection, /) -> None:
    """Show how many jobs wait, run and are dead, and the pools."""
    connection.show(connection.get("/status"), lambda answer: _print(connection.instance, answer))


@click.command()
@client_command
def health(connection: Connection, /) -> None:
    """Ask whether a server accepts work: a container's health check.

    Needs no token. Exit code 1 if it does not, with the reason; 3 if nobody
    answers.
    """
    answer = connection.of("default").get("/readyz")
    codes = ", ".join(answer.get("reasons") or ())
    connection.show(answer, lambda _: say(f"ready, but not well: {codes}" if codes else "ready"))


def _clock(state: Mapping[str, Any] | None) -> str | None:
    """Return where a test clock stands, and what becomes of it."""
    if state is None:
        return None
    target, waits = state.get("target"), state.get("waitsFor")
    moves = "frozen" if target is None else f"advanced to {shown_instant(target)}"
    return f"{shown_instant(state['now'])}, {moves}" + (f": {waits}" if waits else "")


def _origin(one: Mapping[str, Any]) -> str:
    """Say how a named origin of the server is."""
    said = one.get("message") or one["state"]
    return f"{one['name']}: {said}" + (f", {one['inFlight']:,} of {one['limit']:,} lanes" if one["inFlight"] else "")


def _hosts(cluster: Mapping[str, Any] | None) -> list[tuple[str, str | None]]:
    """Say which hosts the store has, and which of them has this instance."""
    if cluster is None:
        return []
    hosts = [
        f"{one['name']}: {one['slots']:,} slots"
        + ("" if one["state"] == "up" else f", {one['state']}")
        + (", has this instance" if one["host"] == cluster.get("owner") else "")
        for one in cluster["hosts"]
    ]
    if cluster.get("unowned"):
        hosts.append(f"nobody: {cluster['unowned']:,} slots")
    mail = f"{cluster['mail']:,} calls, the first for {span(cluster['oldestMailMs'])}" if cluster.get("mail") else None
    return [("hosts", "\n".join(hosts)), ("mail", mail)]


def _print(instance: str, answer: Mapping[str, Any]) -> None:
    lanes = answer.get("lanes") or {}
    late = answer.get("oldestDueMs")
    key_values(
        ("instance", instance if answer.get("known", True) else f"{instance}: there is nothing in it (yet)"),
        ("health", health_of(answer)),
        ("paused", "yes: none of its jobs start" if answer.get("paused") else None),
        ("clock", _clock(answer.get("clock"))),
        ("backlog", f"{answer['backlog']:,}"),
        ("due now", f"{answer['due']:,}" + (f" (the oldest for {span(late)})" if late is not None else "")),
        ("in flight", f"{answer['inFlight']:,}"),
        ("dead", f"{answer['dead']:,}"),
        ("lanes", f"{lanes['inFlight']} of {lanes['limit']} in use" if lanes else None),
        ("origins", "\n".join(map(_origin, answer.get("origins") or ())) or None),
        *_hosts(answer.get("cluster")),
    )
    if answer.get("pools"):
        put()
        print_pools(answer["pools"])
        if answer.get("morePools"):
            say(MORE)
