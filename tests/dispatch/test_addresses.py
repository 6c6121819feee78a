"""Which addresses are called: public ones, and those that the operator names."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.dispatch.addresses import Addresses, AddressRefused, embedded_in
from tocsin.errors import SettingsError

PUBLIC = ["1.1.1.1", "93.184.215.14", "223.255.255.254", "2606:4700::1111", "2a00:1450:4001:81b::200e"]
NOT_PUBLIC = [
    ("0.0.0.0", "unspecified"),
    ("0.1.2.3", "unspecified"),
    ("10.255.0.1", "private"),
    ("100.64.0.1", "NAT"),
    ("100.127.255.255", "NAT"),
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("168.63.129.16", "cloud"),
    ("169.254.169.254", "link-local"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.0.0.192", "reserved"),
    ("192.0.2.1", "documentation"),
    ("192.168.1.1", "private"),
    ("198.19.0.1", "benchmarks"),
    ("198.51.100.1", "documentation"),
    ("203.0.113.1", "documentation"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.255", "multicast"),
    ("255.255.255.255", "reserved"),
    ("::", "unspecified"),
    ("::1", "loopback"),
    ("::7f00:1", "IPv4"),
    ("::ffff:127.0.0.1", "IPv4"),
    ("::ffff:8.8.8.8", "IPv4"),
    ("64:ff9b::7f00:1", "IPv4"),
    ("64:ff9b:1::a00:1", "IPv4"),
    ("2002:7f00:1::", "IPv4"),
    ("2001:0:53aa:64c:0:0:80ff:fffe", "IPv4"),
    ("2606:4700::5efe:10.0.0.1", "IPv4"),
    ("2606:4700::200:5efe:a00:1", "IPv4"),
    ("fc00::1", "private"),
    ("fd00:ec2::254", "private"),
    ("fe80::1", "link-local"),
    ("fe80::1%eth0", "link-local"),
    ("fec0::1", "private"),
    ("ff02::1", "multicast"),
    ("100::1", "reserved"),
    ("4000::1", "reserved"),
    ("5f00::1", "reserved"),
    ("2001:2::1", "reserved"),
    ("2001:db8::1", "documentation"),
    ("3fff::1", "documentation"),
    ("127.1", "no address"),
    ("0x7f.1", "no address"),
    ("", "no address"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_called(address: str) -> None:
    assert Addresses().fault(address) is None


@pytest.mark.parametrize(("address", "what"), NOT_PUBLIC)
def test_others_are_not_and_the_fault_says_what_they_are(address: str, what: str) -> None:
    assert what in (Addresses().fault(address) or "")


@given(st.ip_addresses())
def test_nothing_is_called_that_python_knows_not_to_be_global(one: IPv4Address | IPv6Address) -> None:
    if not one.is_global or one.is_multicast:
        assert Addresses().fault(str(one)) is not None


@given(st.ip_addresses(v=4))
def test_an_address_inside_another_is_judged_as_itself_even_where_the_outer_one_is_permitted(one: IPv4Address) -> None:
    translated = Addresses(["64:ff9b::/96", "::ffff:0:0/96"])

    for outer in (f"64:ff9b::{one}", f"::ffff:{one}"):
        assert (translated.fault(outer) is None) == (Addresses().fault(str(one)) is None)
        assert embedded_in(ip_address(outer)) == one


def test_a_network_that_is_named_is_permitted_and_no_other() -> None:
    mine = Addresses(["10.1.0.0/16", "fd12::/16", "127.0.0.2"])

    assert mine.fault("10.1.2.3") is mine.fault("fd12::9") is mine.fault("127.0.0.2") is None
    assert (
        mine.fault("10.2.0.1") and mine.fault("fd13::9") and mine.fault("127.0.0.1") and mine.fault("::ffff:10.1.2.3")
    )


def test_one_bad_address_of_a_name_refuses_the_name() -> None:
    with pytest.raises(AddressRefused, match=r"hooks\.example has the address 10\.0\.0\.1, which is private"):
        Addresses().check("hooks.example", ["1.1.1.1", "10.0.0.1"])


@pytest.mark.parametrize("network", ["10.1.0.0/33", "10.1.2.3/16", "here", 7])
def test_what_is_no_network_is_refused_by_name(network: str) -> None:
    with pytest.raises(SettingsError, match="url_networks must hold networks like"):
        Addresses([network])
