"""Providers for whoever serves: of several stores, or of one, as its own notes allow."""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.errors import SettingsError
from tocsin.storage.api import StoreProvider
from tocsin.storage.notes import NOTES, RESIDENCY, check_not_moved, read_notes
from tocsin.storage.residency.provider import NamedStores
from tocsin.storage.residency.rules import Kept, Rules
from tocsin.storage.residency.shared import SharedNamedStores
from tocsin.storage.shared import shared_of


def named_stores(parts: Mapping[str, StoreProvider], residency: Mapping[str, str]) -> NamedStores:
    """Make the provider of several stores. SettingsError for a wrong name, or rules that contradict each other."""
    return _of(parts, Rules.of(list(parts), residency))


async def fit_to_serve(provider: StoreProvider) -> StoreProvider:
    """Return the provider to serve a started store with. One of several stores serves its own instances only, also
    where it is opened alone. StoreMoved for a store whose actors are elsewhere; SettingsError for one of several that
    several hosts share."""
    if isinstance(provider, NamedStores):
        return provider
    notes = await read_notes(provider.view(NOTES))
    check_not_moved(notes, "this store")
    if RESIDENCY not in notes:
        return provider
    kept = Kept.read(notes[RESIDENCY])
    if shared_of(provider) is not None:
        # What belongs elsewhere would travel through this store on its way to a host that has the others.
        raise SettingsError(
            f"this store is {kept.store} of several, and hosts of it have all of them: give the stores by name "
            f"({', '.join(kept.rules.stores)}), with these rules of residency: {kept.rules.in_words()}"
        )
    alone = _of({kept.store: provider}, kept.rules)
    alone.started()
    return alone


def _of(parts: Mapping[str, StoreProvider], rules: Rules) -> NamedStores:
    shared = any(shared_of(part) is not None for part in parts.values())
    return SharedNamedStores(parts, rules) if shared else NamedStores(parts, rules)
