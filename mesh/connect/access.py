"""Permissions of apps on a node: files, addresses that may be bound, and hosts to connect to.

Connectors ask here before they open anything, and so do the processes that use databases.

    receiver.egress     empty: all hosts but loopback and link-local ones
                        host:port, *.domain:port, *:port; a wildcard fits none of those, either

Permissions of connectors on this node, and words of their options.
"""

from __future__ import annotations

import os
import re
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import fields, replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mesh.connect.contract import NodeAccess, UnavailableError
from mesh.errors import MeshError
from mesh.files import scratch
from mesh.model.addresses import is_among, is_named, split_list
from mesh.model.stored import Backend

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from mesh.model.stored import Database
    from mesh.settings import Settings


#: Of an empty setting ``receiver.egress``.
_EVERY_HOST: Final = ("*:0-65535",)
#: Ports of databases by default.
_PORTS: Final = {Backend.POSTGRESQL: 5432, Backend.MYSQL: 3306, Backend.REDIS: 6379}
#: A name or an address; libraries read others as several hosts, or as the path of a socket.
_HOST: Final = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")
#: Addresses of IPv4 within IPv6 that a gateway translates.
_NAT64: Final = ip_network("64:ff9b::/96")
#: Metadata of a cloud's machine at an address that is not link-local.
_METADATA: Final = frozenset({ip_address("fd00:ec2::254")})
#: Time for the look-up of a name, during which the caller's thread waits; age of a result; results.
_WAIT_S: Final = 0.5
_CACHE_S: Final = 30.0
_CACHE_MAX: Final = 10_000

_Address = IPv4Address | IPv6Address
_resolver: Final = ThreadPoolExecutor(4, "mesh-names")
#: By name: when it was last looked up, monotonic, seconds, and the answer.
LOOKUPS: dict[str, tuple[float, Future[tuple[_Address, ...]]]] = {}


def access_of(settings: Settings) -> NodeAccess:
    """The permissions of the settings, on this node."""
    receiver = settings.receiver
    roots = (os.path.realpath(one) for one in split_list(receiver.file_roots))
    return NodeAccess(
        tuple(roots),
        split_list(receiver.listen),
        split_list(receiver.egress) or _EVERY_HOST,
        connections_max=receiver.connections_max,
        head_timeout_s=receiver.head_timeout_s,
        body_timeout_s=receiver.body_timeout_s,
        mesh_files=mesh_files(settings),
        changes_databases=settings.stores.cud_operations,
    )


def path_of(access: NodeAccess, uri: str) -> str:
    """The path of a file, with links resolved.

    Raises:
        MeshError: MESH-C132 for one that is not below ``receiver.file_roots``, and for the mesh's
            own files.
    """
    path = os.path.realpath(uri.removeprefix("file://").removeprefix("file:"))
    if not any(_is_below(path, root) for root in access.file_roots):
        raise MeshError(
            "MESH-C132",
            f'file "{uri}" is not open to connectors on this worker',
            detail=f"Open are: {', '.join(access.file_roots) or 'none'}.",
            hint="Add its directory to the setting receiver.file_roots.",
        )
    if _is_protected(path, access.mesh_files):
        raise MeshError(
            "MESH-C132",
            f'file "{uri}" is not open to connectors on this worker',
            detail="It is one of the mesh's own: settings, keys, users, states.",
            hint="Keep the files of apps apart from those of the mesh.",
        )
    return path


def first_root(access: NodeAccess) -> str:
    """The first of ``receiver.file_roots``; a path that is refused if there is none."""
    return access.file_roots[0] if access.file_roots else "/"


def check_listen(access: NodeAccess, host: str, port: int) -> None:
    """Refuse an address that no connector may bind; MESH-C132.

    ``localhost`` is open where 127.0.0.1 is.
    """
    names = (host, "127.0.0.1") if host.lower() == "localhost" else (host,)
    if any(is_among(access.listen, name, port) for name in names):
        return
    raise MeshError(
        "MESH-C132",
        f"address {host}:{port} is not open to connectors on this worker",
        detail=f"Open are: {', '.join(access.listen) or 'none'}.",
        hint="Add it to the setting receiver.listen.",
    )


def check_egress(access: NodeAccess, host: str, port: int) -> None:
    """Refuse an address that no connector may connect to.

    Raises:
        MeshError: MESH-C132; UnavailableError: the name of the host is being looked up.
    """
    if access.egress is None or is_named(access.egress, host, port):
        return
    if not is_among(access.egress, host, port) or not _is_host(host):
        detail = f"Open are: {', '.join(access.egress)}."
    elif _is_near(host):
        detail = "It is an address of this machine, or of its link, and has to be named there."
    else:
        return
    raise MeshError(
        "MESH-C132",
        f"connectors of this worker may not connect to {host}:{port}",
        detail=detail,
        hint="Add it to the setting receiver.egress.",
    )


def check_url(access: NodeAccess, url: str, port: int) -> None:
    """Refuse a URL to which no connector may connect; ``port``: if it has none.  MESH-C132."""
    parts = urlsplit(url)
    check_egress(access, parts.hostname or "", parts.port or port)


def open_database(access: NodeAccess, database: Database) -> Database:
    """A database that the text of an app names, with the path of its file resolved.

    Raises:
        MeshError: MESH-C132 for a file or a server that is not open to connectors.
    """
    if database.backend is Backend.SQLITE:
        return replace(database, database=path_of(access, database.database))
    check_egress(access, database.host or "localhost", database.port or _PORTS[database.backend])
    for name, value in database.parameters:
        if name == "sslrootcert" and value != "system":
            path_of(access, value)
    return database


def _is_host(text: str) -> bool:
    """Whether a text is one name or one address."""
    return _HOST.fullmatch(text) is not None


def _is_near(host: str) -> bool:
    """Whether a host is this machine or on its link, by the addresses of its name of the moment.

    Services there often have no login, such as the metadata of a cloud's machine at
    169.254.169.254.

    Raises:
        UnavailableError: its name is being looked up; the next call may know.
    """
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        # Also forms such as 127.1 and 0x7f000001, which libraries connect to.
        addresses = resolve(name, socket.AI_NUMERICHOST)
    except OSError:
        addresses = _addresses_of(name)
    return any(map(_is_near_address, addresses))


def _is_near_address(address: _Address) -> bool:
    """Whether an address is loopback, link-local or unspecified, also within one of IPv6."""
    if isinstance(address, IPv6Address):
        within = address.ipv4_mapped or address.sixtofour
        if within is None and address in _NAT64:
            within = IPv4Address(int(address) & 0xFFFFFFFF)
        if within is not None:
            return _is_near_address(within)
    is_special = address.is_loopback or address.is_link_local or address.is_unspecified
    # The whole network 0.0.0.0/8 is "this host".
    is_this = isinstance(address, IPv4Address) and int(address) < 1 << 24
    return is_special or is_this or address in _METADATA


def resolve(name: str, flags: int = 0) -> tuple[_Address, ...]:
    """The addresses of a name, by the system; ``OSError`` without any."""
    entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=flags)
    return tuple({ip_address(str(one[4][0]).partition("%")[0]) for one in entries})


def _addresses_of(name: str) -> tuple[_Address, ...]:
    """The addresses of a name; none for one that does not exist."""
    now_s = time.monotonic()
    at_s, lookup = LOOKUPS.get(name, (0.0, None))
    if lookup is None or (lookup.done() and now_s - at_s > _CACHE_S):
        if len(LOOKUPS) >= _CACHE_MAX:
            LOOKUPS.clear()
        lookup = _resolver.submit(resolve, name)
        LOOKUPS[name] = now_s, lookup
    try:
        return lookup.result(_WAIT_S)
    except NotYetError as error:
        raise UnavailableError(f"the name {name} is being looked up") from error
    except (OSError, UnicodeError):
        return ()


def mesh_files(settings: Settings) -> tuple[str, ...]:
    """Files and directories of the mesh itself that no app may use: settings, logins, keys, states.

    Those that settings name and those of the user's commands, with links resolved.
    """
    entries = [str(_of_commands()), os.environ.get("CREDENTIALS_DIRECTORY", "")]
    for section in fields(settings):
        values = getattr(settings, section.name)
        for one in fields(values):
            if one.metadata["is_mesh_file"]:
                entries += str(getattr(values, one.name)).split(",")
    # A store of states may be a URI, or the word jetstream.
    paths = (one.strip().removeprefix("file://") for one in entries)
    return tuple(dict.fromkeys(os.path.realpath(p) for p in paths if _is_path(p)))


def _is_protected(path: str, roots: Collection[str]) -> bool:
    """Whether a resolved path is one of the mesh's own, or below one, or a scratch directory's."""
    return any(_is_below(path, one) for one in roots) or scratch.is_scratch(path)


def _is_below(path: str, directory: str) -> bool:
    """Whether a resolved path is a directory or below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _is_path(text: str) -> bool:
    return bool(text) and text != "jetstream" and "://" not in text


def _of_commands() -> Path:
    from mesh.files.private_files import user_directory

    return user_directory()


__all__ = ["check_egress", "check_listen", "check_url", "first_root", "path_of", "words"]


def words(text: str | None) -> list[str]:
    """Words of a comma-separated list."""
    return list(split_list(text or ""))
