"""Bounded reading of the bodies of HTTP requests, for the REST API and the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from mesh.errors import MeshError

if TYPE_CHECKING:
    from starlette.requests import Request


async def read_body(request: Request, most: int) -> bytes:
    """The body; MESH-A413 if it has more than ``most`` bytes, MESH-A400 if its client has left."""
    read = bytearray()
    try:
        async for chunk in request.stream():
            read += chunk
            if len(read) > most:
                raise MeshError("MESH-A413", f"a request of this kind has {most} bytes at most")
    except ClientDisconnect as error:
        # The answer is for the audit; its client can not read it.
        raise MeshError("MESH-A400", "the connection ended before the request did") from error
    return bytes(read)
