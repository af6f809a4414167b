"""Reading objects of an object store at the speed of the wire.

nats-py takes half a second for an object of 8 MB, whatever it does meanwhile: a state of 100 MB
would keep an instance from coming back for many seconds.  Here the chunks are read as the source
reads a channel, from the first of them on; the server would look for that through the whole store.

Source:
    github.com/nats-io/nats-architecture-and-design, ADR-20: subjects, metadata, digest.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, Final

import orjson
from nats.js.errors import ObjectNotFoundError

from mesh.errors import MeshError
from pyspark_nats import fetch, jetstream
from pyspark_nats.ranges import Blocks, StreamRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_nats.connection import Connection

_DIGEST: Final = "SHA-256="


def read(connection: Connection, bucket: str, name: str) -> bytes:
    """The content of an object.

    Raises:
        ObjectNotFoundError: it isn't there, or was deleted.
        MeshError: MESH-S103 when it is not what was stored.
        ConnectorError: NATS stayed away.
    """
    stream = f"OBJ_{bucket}"
    encoded = base64.urlsafe_b64encode(name.encode()).decode()

    def look() -> jetstream.Stored | None:
        wanted = [(stream, f"$O.{bucket}.M.{encoded}")]
        return jetstream.last_messages(connection, wanted)[0]

    stored = connection.riding("looking for an object", look)
    meta: dict[str, Any] = orjson.loads(stored.data) if stored is not None else {}
    if stored is None or meta.get("deleted"):
        raise ObjectNotFoundError
    subject = f"$O.{bucket}.C.{meta['nuid']}"
    data = b"".join(_chunks(connection, stream, subject, stored.sequence)) if meta["size"] else b""
    digest = base64.urlsafe_b64decode(str(meta["digest"]).removeprefix(_DIGEST))
    if len(data) != meta["size"] or hashlib.sha256(data).digest() != digest:
        raise MeshError(
            "MESH-S103",
            f'piece "{name}" of a snapshot is not what was stored',
            detail=f"{len(data)} bytes came, and {meta['size']} were stored.",
        )
    return data


def _chunks(connection: Connection, stream: str, subject: str, last: int) -> Iterator[bytes]:
    """The chunks on ``subject``, all of which lie before sequence ``last``."""

    def look() -> jetstream.Stored | None:
        return jetstream.next_message(connection, stream, 1, subject)

    first = connection.riding("looking for the first chunk", look)
    if first is None:
        return
    wanted = StreamRange(stream, first.sequence - 1, last, 0, 0, subjects=(subject,))
    for messages in fetch.read_range(connection, wanted, Blocks(), is_loss_error=False):
        for chunk in messages.data:
            yield chunk.as_py()
