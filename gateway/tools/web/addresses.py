"""Which addresses a page may be fetched from: those that anybody on the internet reaches, and no others.

The check is where a socket is made, for each address that is tried, after names are resolved. So neither a name that
means two addresses, nor one that means another the second time, nor a redirect leads inside; and nothing inside is
touched, not even to see whether it answers.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

_NOT_GLOBAL = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))  # which some versions of Python let be
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_OLD_SITES = IPv6Network("fec0::/10")
_COMPATIBLE = IPv6Network("::/96")  # RFC 4291, 2.5.5.1, deprecated


class NotPublic(OSError):
    """An address inside: of this machine, of its network, or of nobody."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is reached from everywhere, and whatever address it holds within it, too."""
    if address.is_multicast or address.is_reserved or address.is_unspecified or address.is_loopback:
        return False
    if isinstance(address, IPv4Address):
        return address.is_global and not any(address in net for net in _NOT_GLOBAL)
    if address in _OLD_SITES or address in _COMPATIBLE or any(address in net for net in _NAT64):
        return False
    within = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    return address.is_global and all(is_public(each) for each in within if each is not None)


def public_socket(info: tuple[Any, Any, Any, Any, Any]) -> socket.socket:
    """The socket for one address, as `getaddrinfo` describes it.

    Raises:
        NotPublic: it leads inside.
    """
    family, kind, protocol, _, place = info
    host = str(place[0]).partition("%")[0]
    if family not in (socket.AF_INET, socket.AF_INET6) or not is_public(ip_address(host)):
        raise NotPublic(f"{host} is not an address of the public internet")
    return socket.socket(family=family, type=kind, proto=protocol)
