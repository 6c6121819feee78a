"""Print schedules and their occurrences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tocsin.cli.job_options import shown
from tocsin.cli.output import Column, instant, key_values, now_ms, plural, print_rows, relative, span, when
from tocsin.cli.records import DAMAGED, then_lines
from tocsin.cli.words import printable

SCHEDULES: Final = (Column("SCHEDULE", 28), Column("STATE", 9), Column("NEXT", 11), Column("RULE", whole=True))
OCCURRENCES: Final = (Column("SLOT", 24), Column("STATE", 9), Column("LATE", 7, right=True), Column("", whole=True))


def rule_of(schedule: Mapping[str, Any]) -> str:
    """Format a rule: `30 9 * * mon-fri (Europe/Berlin)`, `every 5m`, `once, at 2027-01-01T09:00:00Z`."""
    if (cron := schedule.get("cron")) is not None:
        zone = schedule.get("timezone", "UTC")
        return printable(cron) + ("" if zone == "UTC" else f" ({printable(zone)})")
    if (every := schedule.get("everyMs")) is not None:
        return f"every {exact(every)}"
    return f"once, at {slot_time(schedule['at'])}"


def exact(ms: int) -> str:
    """Format a duration without loss: `1m 30s`, `5400001ms`."""
    return span(ms) if _whole(ms) else f"{ms:,}ms"


def _whole(ms: int) -> bool:
    units = [unit for unit in (86_400_000, 3_600_000, 60_000, 1_000) if ms >= unit][:2]
    return bool(units) and ms % units[-1] == 0


def slot_time(ms: int) -> str:
    """Format the instant of a slot; slots of cron rules have no milliseconds."""
    return instant(ms).replace(".000Z", "Z")


def print_schedules(schedules: Sequence[Mapping[str, Any]], *, header: bool) -> None:
    now = now_ms()
    rows = [
        (
            printable(one["name"]),
            printable(one["state"]),
            "" if one.get("nextAt") is None else relative(one["nextAt"], now),
            rule_of(one) + (", orphaned" if one.get("orphaned") else ""),
        )
        for one in schedules
    ]
    print_rows(SCHEDULES, rows, header=header)


def print_schedule(one: Mapping[str, Any]) -> None:
    """Print one schedule, one member a line."""
    import msgspec

    now = now_ms()
    key_values(
        ("schedule", one["name"]),
        ("state", one["state"]),
        ("error", one.get("error")),
        ("rule", rule_of(one)),
        ("next", when(one.get("nextAt"), now)),
        ("path", one.get("functionPath")),
        ("workflow", one.get("workflow")),
        ("misfire", _misfire(one)),
        ("overlap", one["overlap"]),
        ("held back", None if one.get("heldBack") is None else f"the slot of {slot_time(one['heldBack'])}"),
        ("jitter", span(one["jitterMs"]) if one.get("jitterMs") else None),
        ("live", plural(one["live"], "occurrence")),
        *shown(one),
        ("then", "\n".join(then_lines(one.get("then") or ())) or None),
        ("on dead", "\n".join(then_lines(one.get("onDead") or ())) or None),
        ("expires", f"{exact(one['expiresAfterMs'])} after it was due" if one.get("expiresAfterMs") else None),
        ("owner", _owner(one)),
        ("revision", one["revision"]),
        ("created", when(one["createdAt"], now)),
        ("defined by", " ".join((one.get("initiator") or {}).values()) or None),
        ("args", DAMAGED if one.get("argsDamaged") else msgspec.json.encode(one.get("args")).decode()),
    )


def _misfire(one: Mapping[str, Any]) -> str:
    said = f"{one['misfire']}, of slots more than {exact(one['graceMs']) if one['graceMs'] else '0s'} late"
    if one["misfire"] != "all":
        return said
    limit = one.get("catchUpLimit")
    return said + (", without limit" if limit is None else f", the newest {limit:,}")


def _owner(one: Mapping[str, Any]) -> str | None:
    owner = one.get("owner")
    return f"{owner}, which does not name it any more" if owner and one.get("orphaned") else owner


def print_occurrences(occurrences: Sequence[Mapping[str, Any]], *, header: bool) -> None:
    rows = [
        (
            slot_time(one["slot"]),
            printable(one["state"]),
            span(one["latenessMs"]),
            ", ".join(_facts(one)),
        )
        for one in occurrences
    ]
    print_rows(OCCURRENCES, rows, header=header)


def _facts(one: Mapping[str, Any]) -> list[str]:
    facts = [printable(one[name]) for name in ("jobId", "reason") if one.get(name)]
    if (until := one.get("until")) is not None:
        count = one.get("count")
        facts.append(f"{'many' if count is None else f'{count:,}'} slots until {slot_time(until)}")
    if (first := one.get("firstSlot")) is not None:
        count = one.get("coalesced")
        facts.append(f"for {'many' if count is None else f'{count:,}'} more since {slot_time(first)}")
    if one.get("triggered"):
        facts.append("triggered")
    if one.get("live"):
        facts.append("live")
    return facts
