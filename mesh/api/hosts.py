"""Hosts of requests: names of this machine, and parts of origins and ``Host`` headers."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether ``host``, a name or an address, is this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def netloc(origin: str) -> str | None:
    """Host and port of an origin; None for text that is no URL, like ``http://[``."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def hostname(host: str) -> str:
    """The name or address of a ``Host`` header; empty for text that is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
