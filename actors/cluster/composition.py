"""Makes the part that a host has in a shared store of what the host has.

All of this room but this module is imported when a store is shared: most hosts have theirs alone, and start sooner.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tocsin.actors.runtime.host import Host
from tocsin.actors.scheduler.actor.service import SchedulerService
from tocsin.actors.sharing.this_host import ThisHost
from tocsin.errors import SettingsError
from tocsin.storage.api import StoreProvider
from tocsin.storage.shared import SharedProvider, shared_of

if TYPE_CHECKING:
    from tocsin.actors.cluster.cluster import Cluster
    from tocsin.actors.cluster.network import Network


def network_at(address: str | Network | None, provider: StoreProvider) -> Network | None:
    """Return how hosts of a shared store reach each other; None for a store that one host has. SettingsError."""
    if shared_of(provider) is None:
        if address is not None:
            raise SettingsError("peer_address is for stores that several hosts share, such as postgresql://…")
        return None
    from tocsin.actors.cluster.network import TcpNetwork

    return TcpNetwork(address) if address is None or isinstance(address, str) else address


def cluster_of(
    here: ThisHost,
    shared: SharedProvider | None,
    network: Network | None,
    runtime: Host,
    service: SchedulerService,
    dispatch: bool,
) -> Cluster | None:
    """Return the part of this host; None if it has its store alone. A host that starts nothing by itself is to own
    nothing while there are others."""
    if shared is None:
        return None
    from tocsin.actors.cluster.cluster import Cluster
    from tocsin.actors.cluster.network import TcpNetwork

    service.elsewhere = cluster = Cluster(
        here, shared, network or TcpNetwork(), runtime.clock, runtime.random, os.getpid(),
        passes=service.passes, learn_clock=service.stored_clocks.learn, weight=int(dispatch),
    )  # fmt: skip
    return cluster
