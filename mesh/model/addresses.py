"""Lists of network addresses in settings: hosts with ports, and what they allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def split_list(text: str) -> tuple[str, ...]:
    """The entries of a list of a setting, which commas separate."""
    return tuple(one.strip() for one in text.split(",") if one.strip())


def is_named(addresses: Iterable[str], host: str, port: int) -> bool:
    """Whether a list has an address by its own name, without a wildcard; see ``is_among``."""
    return is_among((one for one in addresses if not one.startswith("*")), host, port)


def is_among(addresses: Iterable[str], host: str, port: int) -> bool:
    """Whether a list has an address.

    Args:
        addresses: ``host:port`` or ``host:first-last``; ``*`` is any host, and ``*.example.org``
            one below a domain.
        host: a name or an address.
        port: of it.
    """
    for allowed in addresses:
        name, _, ports = allowed.rpartition(":")
        name, (first, _, last) = name.strip("[]"), ports.partition("-")
        is_below = name.startswith("*.") and host.endswith(name[1:])
        if not (name in ("*", host) or is_below) or not first.isdecimal():
            continue
        if int(first) <= port <= int(last if last.isdecimal() else first):
            return True
    return False
