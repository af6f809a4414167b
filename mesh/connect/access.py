"""Permissions of apps on a node: files, addresses that may be bound, and hosts to connect to.

Connectors ask here before they open anything, and so do the processes that use databases.

    receiver.egress     empty: all hosts but loopback and link-local ones
                        host:port, *.domain:port, *:port; a wildcard fits none of those, either
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mesh import protected_files
from mesh.connect.contract import NodeAccess
from mesh.connect.near_hosts import is_host, is_near
from mesh.errors import MeshError
from mesh.model.addresses import is_among, is_named, split_list
from mesh.model.stored import Backend

if TYPE_CHECKING:
    from mesh.model.stored import Database
    from mesh.settings import Settings

#: Of an empty setting ``receiver.egress``.
_EVERY_HOST: Final = ("*:0-65535",)
#: Ports of databases by default.
_PORTS: Final = {Backend.POSTGRESQL: 5432, Backend.MYSQL: 3306, Backend.REDIS: 6379}


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
        own_files=protected_files.of_settings(settings),
        changes_databases=settings.stores.cud_operations,
    )


def path_of(access: NodeAccess, uri: str) -> str:
    """The path of a file, with links resolved.

    Raises:
        MeshError: MESH-C132 for one that is not below ``receiver.file_roots``, and for the mesh's
            own files.
    """
    path = os.path.realpath(uri.removeprefix("file://").removeprefix("file:"))
    if not any(protected_files.is_below(path, root) for root in access.file_roots):
        raise MeshError(
            "MESH-C132",
            f'file "{uri}" is not open to connectors on this worker',
            detail=f"Open are: {', '.join(access.file_roots) or 'none'}.",
            hint="Add its directory to the setting receiver.file_roots.",
        )
    if protected_files.is_protected(path, access.own_files):
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
    """Refuse an address that no connector may bind; MESH-C132."""
    if is_among(access.listen, host, port):
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
    if not is_among(access.egress, host, port) or not is_host(host):
        detail = f"Open are: {', '.join(access.egress)}."
    elif is_near(host):
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
