"""Permissions of connectors on this node: directories, and addresses that may be bound."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

from mesh.connect.contract import Access
from mesh.errors import MeshError
from mesh.model.addresses import is_among, split_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.settings import ReceiverSettings


def words(text: str | None) -> list[str]:
    """Words of a comma-separated list."""
    return list(split_list(text or ""))


def access_of(settings: ReceiverSettings) -> Access:
    """The permissions of the settings."""
    roots = (os.path.realpath(one) for one in split_list(settings.file_roots))
    return Access(
        tuple(roots),
        split_list(settings.listen),
        split_list(settings.egress) or None,
        connections_max=settings.connections_max,
        head_timeout_s=settings.head_timeout_s,
        body_timeout_s=settings.body_timeout_s,
    )


def path_of(access: Access, uri: str) -> str:
    """The path of a file, with links resolved.

    Raises:
        MeshError: MESH-C132 for one that is not below ``receiver.file_roots``.
    """
    path = os.path.realpath(uri.removeprefix("file://").removeprefix("file:"))
    for root in access.file_roots:
        if path == root or path.startswith(root.rstrip("/") + "/"):
            return path
    raise MeshError(
        "MESH-C132",
        f'file "{uri}" is not open to connectors on this worker',
        detail=f"Open are: {', '.join(access.file_roots) or 'none'}.",
        hint="Add its directory to the setting receiver.file_roots.",
    )


def first_root(access: Access) -> str:
    """The first of ``receiver.file_roots``; a path that is refused if there is none."""
    return access.file_roots[0] if access.file_roots else "/"


def check_listen(access: Access, host: str, port: int) -> None:
    """Refuse an address that no connector may bind; MESH-C132."""
    if is_among(access.listen, host, port):
        return
    raise MeshError(
        "MESH-C132",
        f"address {host}:{port} is not open to connectors on this worker",
        detail=f"Open are: {', '.join(access.listen) or 'none'}.",
        hint="Add it to the setting receiver.listen.",
    )


def check_egress(access: Access, host: str, port: int) -> None:
    """Refuse an address that no connector may connect to; MESH-C132."""
    if access.egress is None or is_among(access.egress, host, port):
        return
    raise MeshError(
        "MESH-C132",
        f"connectors of this worker may not connect to {host}:{port}",
        detail=f"Open are: {', '.join(access.egress)}.",
        hint="Add it to the setting receiver.egress.",
    )


def check_url(access: Access, url: str, port: int) -> None:
    """Refuse a URL to which no connector may connect; ``port``: if it has none.  MESH-C132."""
    parts = urlsplit(url)
    check_egress(access, parts.hostname or "", parts.port or port)


def references_of(path: str) -> Mapping[str, Mapping[str, str]]:
    """Options by name of reference, from the file of ``receiver.refs_file``.

    Raises:
        MeshError: MESH-C131 for a file that can't be read.
    """
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            found: Any = yaml.safe_load(file) or {}
        return {
            str(name): {str(key): _text(value) for key, value in options.items()}
            for name, options in found.items()
        }
    except (OSError, yaml.YAMLError, AttributeError) as error:
        # The text of a YAML error may hold a secret.
        raise MeshError(
            "MESH-C131",
            f'file "{path}" of receiver.refs_file can\'t be read',
            detail=f"{type(error).__name__}.",
            hint="It is YAML: for each reference a mapping of options to values.",
        ) from error


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
