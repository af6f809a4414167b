"""``@store(type='redis', ..)``: the address of a server, and the life of rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from mesh.errors import MeshError, not_supported
from mesh.model.stored import Backend, Database, RowLife

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.syntax import Annotation

#: Options of the type; those of every type are beside them.
REDIS_OPTIONS: Final = frozenset(
    {
        "type", "nodes", "host", "port", "url", "datasource", "ref", "username", "password",
        "table.name", "cluster.mode", "ttl.seconds", "ttl.on.update", "ttl.on.read", "on.error",
        "kept",
    }
)  # fmt: skip
#: Years: the server counts milliseconds in 64 bits.
_SECONDS_MAX: Final = 2**31 - 1
_SCHEMES: Final = ("redis", "rediss")
_NODE: Final = re.compile(r"(?P<host>[^@,:\s]+|\[[^\]]+\])(?::(?P<port>[0-9]{1,5}))?")
#: A second node: a comma, a host and a port.
_MORE: Final = re.compile(r",\s*[^@,:\s]+:[0-9]+")


def is_redis(url: str) -> bool:
    """Whether a URL is one of Redis."""
    return url.partition(":")[0].lower() in _SCHEMES


def redis_of(
    url: str, username: str | None, password: str | None, position: Position | None = None
) -> Database:
    """The database of ``redis://user:password@host:6379/0``; ``rediss://``: with TLS.

    Args:
        url: the address; ``?sslrootcert=file`` names the certificates that are trusted.
        username: of the login; None: that in the URL.
        password: likewise.
        position: of the annotation, for errors.

    Raises:
        MeshError: MESH-P240 for a URL that can't be read.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _unreadable_uri(position) from None
    number = parts.path.removeprefix("/") or "0"
    if not parts.hostname or not number.isdecimal() or not is_redis(url):
        raise _unreadable_uri(position)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    tls_options = {n: parameters[n] for n in ("sslrootcert",) if n in parameters}
    if parts.scheme == "rediss":
        tls_options["tls"] = "true"
    return Database(
        Backend.REDIS,
        number,
        parts.hostname,
        port,
        unquote(parts.username or "") if username is None else username,
        unquote(parts.password or "") if password is None else password,
        tuple(tls_options.items()),
    )


def redis_in(annotation: Annotation) -> Database:
    """The database that an annotation names by ``nodes``, ``host`` and ``port``, or ``url``.

    Raises:
        MeshError: MESH-P240 without one; MESH-P900 for a cluster.
    """
    position = annotation.position
    nodes = annotation.get("nodes")
    if _flag(annotation, "cluster.mode") or (nodes is not None and _MORE.search(nodes)):
        # A transaction there has the keys of one slot, and each row would be in another.
        raise not_supported(
            "a cluster of Redis", position, hint="Name a server that is no cluster, by nodes."
        )
    username, password = annotation.get("username"), annotation.get("password")
    url, host = annotation.get("url"), annotation.get("host")
    if nodes is None and host is not None:
        nodes = ":".join(one for one in (host, annotation.get("port")) if one is not None)
    if nodes is None and url is not None:
        return redis_of(url, username, password, position)
    if nodes is None:
        raise wrong_store(annotation, "@store needs nodes, or datasource")
    address, _, written = nodes.partition("@")
    match = _NODE.fullmatch(address.strip())
    if match is None:
        # A part that is not understood may be a password.
        raise _unreadable_uri(position)
    return Database(
        Backend.REDIS,
        "0",
        match["host"].strip("[]"),
        int(match["port"]) if match["port"] else None,
        username or "",
        written if password is None else password,
    )


def life_in(annotation: Annotation) -> RowLife | None:
    """The life of rows; None: they stay.

    Raises:
        MeshError: MESH-P240 for a wrong option.
    """
    is_renewed, by_reads = (_flag(annotation, f"ttl.on.{one}") for one in ("update", "read"))
    text = annotation.get("ttl.seconds") or "-1"
    if text == "-1":
        return None
    if not text.isdecimal() or not 0 < int(text) <= _SECONDS_MAX:
        raise wrong_store(annotation, f"ttl.seconds is -1, or a number from 1 to {_SECONDS_MAX}")
    return RowLife(int(text), is_renewed, by_reads)


def _flag(annotation: Annotation, option: str) -> bool:
    text = (annotation.get(option) or "false").lower()
    if text not in ("true", "false"):
        raise wrong_store(annotation, f'{option} is true or false, not "{text}"')
    return text == "true"


def wrong_store(annotation: Annotation, message: str, hint: str | None = None) -> MeshError:
    """The error of an option of ``@store``: MESH-P240; without ``hint`` with that to the page."""
    return MeshError(
        "MESH-P240",
        message,
        hint=hint or "docs/stores.md lists the options.",
        position=annotation.position,
    )


def _unreadable_uri(position: Position | None) -> MeshError:
    # It may hold a password, so it is not shown.
    return MeshError(
        "MESH-P240",
        "the address of a store in Redis can't be read",
        hint="Write nodes='host:6379@password', or url='redis://user:password@host:6379/0'.",
        position=position,
    )
