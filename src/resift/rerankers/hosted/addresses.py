"""What a host name or address reaches, by its spelling alone: no name is looked up here.

Every spelling that a resolver takes for an address counts: 127.1, 2130706433, 0x7f.1, [::ffff:127.0.0.1],
localhost with a dot at its end.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Literal

Reach = Literal["public", "loopback", "private", "link-local"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Names under which clouds serve the credentials of the machine that asks.
_METADATA_NAMES = frozenset(
    {"metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
# Outside 169.254.0.0/16: Amazon over IPv6, Oracle and Alibaba.
_METADATA_ADDRESSES = frozenset(
    map(ipaddress.ip_address, ("fd00:ec2::254", "192.0.0.192", "100.100.100.200"))
)
# What the hosts files of Debian and Red Hat call this machine beside localhost.
_LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback", "localhost4", "localhost6"})
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def reach_of(host: str) -> Reach:
    """Return where a host is, as far as its spelling tells; a name of a public domain is public."""
    name = host.rstrip(".").lower()
    if name in _LOOPBACK_NAMES or name.endswith(
        (".localhost", ".localdomain", ".localdomain4", ".localdomain6")
    ):
        return "loopback"
    if name in _METADATA_NAMES:
        return "link-local"
    address = _address(name)
    return "public" if address is None else _reach_of_address(address)


def _address(name: str) -> Address | None:
    try:
        address: Address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        try:
            # The old spellings: 127.1, octal, hexadecimal, one number. Only parsed, nothing is asked.
            address = ipaddress.IPv4Address(socket.inet_aton(name))
        except (OSError, UnicodeError):
            return None
    return _inner(address)


def _inner(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one stands for, where it stands for one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if inner is None and (address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1)):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def _reach_of_address(address: Address) -> Reach:
    if address.is_link_local or address in _METADATA_ADDRESSES:
        return "link-local"
    # 0.0.0.0 and :: reach this machine on most systems.
    if address.is_loopback or address.is_unspecified or address in ipaddress.ip_network("0.0.0.0/8"):
        return "loopback"
    return "public" if address.is_global and not address.is_multicast else "private"
