"""Addresses that callbacks to users' URLs may go to: public ones, and networks that the host's operator names.

An address is judged when it is about to be connected to, after the one lookup of its name: whatever the name leads to
later, or is written like, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from tocsin.errors import SettingsError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

REFUSED: Final[Sequence[tuple[Network, str]]] = [
    (ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "of a carrier's NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "of a cloud's own services"),  # Azure's, though its network is public
        ("169.254.0.0/16", "link-local"),  # where clouds answer with credentials
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "for documentation"),
        ("3fff::/20", "for documentation"),
    )
]
"""The registries of special addresses (RFC 6890 and its successors); the lists of Python differ by its version."""
GLOBAL_V6: Final = ip_network("2000::/3")
"""All that is assigned as global unicast; the rest of IPv6 is reserved."""
MAPPED: Final = ip_network("::ffff:0:0/96")
COMPATIBLE: Final = ip_network("::/96")
NAT64: Final = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
SIX_TO_FOUR: Final = ip_network("2002::/16")
TEREDO: Final = ip_network("2001::/32")
ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
LOWEST: Final = 2**32 - 1


class AddressRefused(OSError):
    """An address that nothing may be sent to. No connection was tried."""


class Addresses:
    """Judges addresses. `networks`: those that are permitted besides public ones, such as `10.1.0.0/16`.

    SettingsError for one that is no network.
    """

    def __init__(self, networks: Iterable[str] = (), name: str = "url_networks") -> None:
        self._permitted = tuple(network_of(each, name) for each in networks)

    def check(self, host: str, addresses: Iterable[str]) -> None:
        """Raise AddressRefused unless all of them are permitted: a name that leads to one that is not is not tried at
        its others."""
        for each in addresses:
            if (what := self.fault(each)) is not None:
                shown = f"{host} is" if each == host else f"{host} has the address {each}, which is"
                raise AddressRefused(f"{shown} {what}; only public addresses are called")

    def fault(self, address: str) -> str | None:
        """Return what speaks against an address; None: nothing does."""
        try:
            one = ip_address(address.partition("%")[0])
        except ValueError:
            return "no address"
        return self._fault(one)

    def _fault(self, one: Address) -> str | None:
        inner = embedded_in(one)
        permitted = any(one.version == network.version and one in network for network in self._permitted)
        if inner is not None:
            # Where a translator is in use, what matters is what it leads to.
            return self._fault(inner) if permitted else "an IPv4 address inside an IPv6 one"
        if permitted:
            return None
        for network, what in REFUSED:
            if one.version == network.version and one in network:
                return what
        return "reserved" if one.version == 6 and one not in GLOBAL_V6 else None


def embedded_in(one: Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to, by translation or through a tunnel; None: to none."""
    if isinstance(one, IPv4Address):
        return None
    value = int(one)
    if one in SIX_TO_FOUR:
        return IPv4Address(value >> 80 & LOWEST)
    if one in TEREDO:
        return IPv4Address(~value & LOWEST)
    if one in MAPPED or one in NAT64[0] or one in NAT64[1] or (value >> 32 & LOWEST) in ISATAP:
        return IPv4Address(value & LOWEST)
    if one in COMPATIBLE and value > 1:  # :: and ::1 are addresses of their own
        return IPv4Address(value)
    return None


def network_of(text: object, name: str) -> Network:
    """Return a network that is written like `10.1.0.0/16`; one address is a network, too. SettingsError otherwise."""
    try:
        if isinstance(text, str):
            return ip_network(text)
    except ValueError as error:
        raise SettingsError(f"{name} must hold networks like 10.1.0.0/16: {error}") from None
    raise SettingsError(f"{name} must hold networks like 10.1.0.0/16, not {text!r:.100}")
