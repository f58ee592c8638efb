"""Decide whether an address of a picture or a file leads to the public Internet.

The provider fetches it, not this server. A provider in your own network could fetch what only that
network may see, such as the credentials at 169.254.169.254. A public name may still lead there.
Only the provider, who looks it up, can know.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

_AUTHORITY = re.compile(
    r"https://(\[[0-9A-Fa-f:.]{2,45}\]|[\w.-]{1,253})(?::\d{1,5})?(?=[/?#]|$)", re.ASCII
)
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
"""Characters that programs read differently: some drop them, some take them for a slash."""
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A name whose last part looks like this is an IPv4 address, however short."""
_PRIVATE_TOP_LEVELS = frozenset(
    (
        *("arpa", "cluster", "consul", "corp", "default", "docker", "home", "internal", "intranet"),
        *("invalid", "lan", "local", "localdomain", "localhost", "onion", "private", "svc", "test"),
    )
)
_RESERVED_IPV4 = IPv4Network("192.0.0.0/24")
"""Addresses of protocols. Python calls some of them global."""
_AZURE_HOST = IPv4Address("168.63.129.16")
"""Each machine in Azure reaches services of its host here, although the address is public."""
_GLOBAL_UNICAST = IPv6Network("2000::/3")


def is_public_https_url(url: str) -> bool:
    """Return whether a URL has a host that is not in a private network by its name or number."""
    authority = _AUTHORITY.match(url)
    if authority is None or _UNSAFE.search(url):
        return False
    host = authority[1].lower()
    if host.startswith("["):
        return _is_public_ipv6(host[1:-1])
    labels = host.removesuffix(".").split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        return _is_public_ipv4(host)
    if len(labels) < 2 or labels[-1] in _PRIVATE_TOP_LEVELS:
        return False
    return all(map(_LABEL.fullmatch, labels))


def _is_public_ipv4(host: str) -> bool:
    try:
        # It accepts four decimal numbers without leading zeros and nothing else.
        address = IPv4Address(host)
    except ValueError:
        return False
    if address in _RESERVED_IPV4 or address == _AZURE_HOST:
        return False
    return address.is_global and not address.is_multicast


def _is_public_ipv6(host: str) -> bool:
    try:
        address = IPv6Address(host)
    except ValueError:
        return False
    # Addresses of 6to4 and Teredo contain an IPv4 address, which may be a private one.
    contains_ipv4 = address.sixtofour or address.teredo
    return address in _GLOBAL_UNICAST and address.is_global and not contains_ipv4
