"""The memory that stores have of their rules, and whether those in force leave every instance where it is.

Each store keeps the rules, so that one that is away, or is not configured any more, still has its instances: the others
refuse them. Rules change only if no instance that is there would belong elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from tocsin.errors import SettingsError, StoreLocked
from tocsin.storage.api import StoreProvider
from tocsin.storage.notes import NOTES, RESIDENCY, check_not_moved, read_notes, write_notes
from tocsin.storage.residency.rules import REFUSE, Kept, Rules, instance_of
from tocsin.storage.shared import shared_of

SHOWN: Final = 3
NAMES_AT_ONCE: Final = 1_000
TRIES: Final = 60
PAUSE_S: Final = 0.25


async def agree(parts: Mapping[str, StoreProvider], rules: Rules) -> None:
    """Have these started stores keep the rules. SettingsError, with nothing changed, if an instance would belong to
    another store than the one it is in, or if other hosts go by other rules; StoreMoved."""
    await _notes_of(parts)  # what moves a store is no host with other rules
    for name, part in parts.items():
        await _check_others(name, part, rules)
    notes = await _notes_of(parts)
    kept = {name: Kept.read(found[RESIDENCY]) for name, found in notes.items() if RESIDENCY in found}
    for name, one in kept.items():
        if one.store != name:
            raise SettingsError(
                f"the store {name} was used under the name {one.store} before, and its instances are fixed to it: "
                "give each store the name that it had"
            )
    changed = [name for name in parts if notes[name].get(RESIDENCY) != rules.written(name)]
    for name in changed:
        if name in kept:
            _check_reached(name, kept[name].rules, parts, rules)
        await _check_stay(name, parts[name], rules)
    for name in changed:
        await _keep(name, parts[name], rules)


async def _notes_of(parts: Mapping[str, StoreProvider]) -> dict[str, dict[bytes, bytes]]:
    """Return the notes of each store. StoreMoved if one of them is not to be served."""
    notes = {name: await read_notes(part.view(NOTES)) for name, part in parts.items()}
    for name, found in notes.items():
        check_not_moved(found, f"the store {name}")
    return notes


def _check_reached(name: str, before: Rules, parts: Mapping[str, StoreProvider], rules: Rules) -> None:
    """Refuse to change rules while a store that has instances by them cannot be asked for those."""
    if before == rules:
        return
    used = {store for store in (*before.patterns.values(), before.rest) if store != REFUSE}
    for store in sorted(used - parts.keys()):
        what = ", ".join(sorted(pattern for pattern, one in before.patterns.items() if one == store)) or "the rest"
        why = "is not reached" if store in rules.stores else "is not among the stores"
        raise SettingsError(
            f"residency was changed, and the store {store}, to which {what} is fixed, {why}: give all stores and "
            f"these rules, which {name} was used with: {before.in_words()}"
        )


async def _check_stay(name: str, part: StoreProvider, rules: Rules) -> None:
    """Refuse rules by which an instance of this store would belong to another one, or to none."""
    astray: list[tuple[str, str]] = []
    last, more = "", True
    while more:
        page = await part.names(last, NAMES_AT_ONCE)
        for last in page:
            instance = instance_of(last)
            if instance is not None and (store := rules.store_of(instance)) != name:
                astray.append((instance, store))
        more = len(page) == NAMES_AT_ONCE
    if astray:
        shown = ", ".join(f"{instance} (would be {store})" for instance, store in sorted(set(astray))[:SHOWN])
        rest = f" and {len(set(astray)) - SHOWN} more" if len(set(astray)) > SHOWN else ""
        raise SettingsError(
            f"the store {name} holds instances that the rules give to another one, and an instance stays in the store "
            f"where it was used first: {shown}{rest}. Write rules that leave them there ({rules.in_words()})"
        )


async def _keep(name: str, part: StoreProvider, rules: Rules) -> None:
    """Write the rules into a store; of a shared one, the host does it that has the actor."""
    written = rules.written(name)
    for _ in range(TRIES):
        if (await part.view(NOTES).get([RESIDENCY])).get(RESIDENCY) == written:
            return
        try:
            await write_notes(part, {RESIDENCY: written})
            # A host that came meanwhile has seen what is written, or is seen here.
            return await _check_others(name, part, rules)
        except StoreLocked:
            if shared_of(part) is None:
                raise
        await asyncio.sleep(PAUSE_S)
    raise SettingsError(f"the host that owns the notes of the store {name} does not write these rules: see its log")


async def _check_others(name: str, part: StoreProvider, rules: Rules) -> None:
    """Refuse to use a store beside hosts that go by other rules. One that was killed is waited for: it is declared dead
    soon."""
    if (shared := shared_of(part)) is None:
        return
    mark, others = rules.mark, [""]
    for _ in range(TRIES):
        facts = await shared.facts()
        here = (one for one in facts.hosts if one.host != facts.host and one.state != "dead")
        if not (others := [one.name for one in here if not one.name.endswith(mark)]):
            return
        await asyncio.sleep(PAUSE_S)
    raise SettingsError(
        f"the store {name} is in use by {', '.join(others)} with other rules: stop all hosts of it before you change "
        "the rules"
    )
