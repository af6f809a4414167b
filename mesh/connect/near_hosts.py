"""Hosts that are this machine, or on its link: loopback, link-local and unspecified addresses.

Services there often have no login, such as the metadata of a cloud's machine at 169.254.169.254.
A name counts by its addresses of the moment.
"""

from __future__ import annotations

import re
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from mesh.connect.contract import UnavailableError

#: A name or an address; libraries read others as several hosts, or as the path of a socket.
_HOST: Final = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")
#: Addresses of IPv4 within IPv6 that a gateway translates.
_NAT64: Final = ip_network("64:ff9b::/96")
#: Metadata of a cloud's machine at an address that is not link-local.
_METADATA: Final = frozenset({ip_address("fd00:ec2::254")})
#: Time for a look-up, during which the caller's thread waits; age of a result; results.
_WAIT_S: Final = 0.5
_CACHE_S: Final = 30.0
_CACHE_MAX: Final = 10_000

_Address = IPv4Address | IPv6Address
_resolver: Final = ThreadPoolExecutor(4, "mesh-names")
_cache: dict[str, tuple[float, Future[tuple[_Address, ...]]]] = {}


def is_host(text: str) -> bool:
    """Whether a text is one name or one address."""
    return _HOST.fullmatch(text) is not None


def is_near(host: str) -> bool:
    """Whether a host is this machine or on its link.

    Raises:
        UnavailableError: its name is being looked up; the next call may know.
    """
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        # Also forms such as 127.1 and 0x7f000001, which libraries connect to.
        addresses = _resolved(name, socket.AI_NUMERICHOST)
    except OSError:
        addresses = _addresses_of(name)
    return any(map(is_near_address, addresses))


def is_near_address(address: _Address) -> bool:
    """Whether an address is loopback, link-local or unspecified, also within one of IPv6."""
    if isinstance(address, IPv6Address):
        within = address.ipv4_mapped or address.sixtofour
        if within is None and address in _NAT64:
            within = IPv4Address(int(address) & 0xFFFFFFFF)
        if within is not None:
            return is_near_address(within)
    is_special = address.is_loopback or address.is_link_local or address.is_unspecified
    # The whole network 0.0.0.0/8 is "this host".
    is_this = isinstance(address, IPv4Address) and int(address) < 1 << 24
    return is_special or is_this or address in _METADATA


def _resolved(name: str, flags: int = 0) -> tuple[_Address, ...]:
    entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=flags)
    return tuple({ip_address(str(one[4][0]).partition("%")[0]) for one in entries})


def _addresses_of(name: str) -> tuple[_Address, ...]:
    """The addresses of a name; none for one that does not exist."""
    now_s = time.monotonic()
    at_s, lookup = _cache.get(name, (0.0, None))
    if lookup is None or (lookup.done() and now_s - at_s > _CACHE_S):
        if len(_cache) >= _CACHE_MAX:
            _cache.clear()
        lookup = _resolver.submit(_resolved, name)
        _cache[name] = now_s, lookup
    try:
        return lookup.result(_WAIT_S)
    except NotYetError as error:
        raise UnavailableError(f"the name {name} is being looked up") from error
    except (OSError, UnicodeError):
        return ()
