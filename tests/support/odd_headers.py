"""Header blocks that any publisher may write, as no client library does."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit

#: Statuses in the first line and as a header, octets that are no text, blocks that are cut off.
HEADS: Final = (
    b"NATS/1.0 \xff\xff\xff\r\n\r\n",
    b"NATS/1.0 404 \xff\xff\r\n\r\n",
    b"NATS/1.0 \xc2\xb2\xc2\r\n\r\n",
    b"NATS/1.0 409\r\n\r\n",
    b"NATS/1.0 404 No Messages\r\n\r\n",
    b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
    b"NATS/1.0\r\nStatus: 404\r\n\r\n",
    b"NATS/1.0\r\nStatus: 409\r\nDescription: Consumer Deleted\r\n\r\n",
    b"NATS/1.0\r\nStatus: 503\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\n\xff\xfe: a\r\n\r\n",
    b"NATS/1.0",
    b"NATS/1.0\r\n",
    b"X",
    b"\xff" * 20,
)


async def publish_odd(url: str, subject: str, *heads: bytes) -> None:
    """Publish an empty message with each header block, by hand."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false,"headers":true,"protocol":1}\r\n')
    for head in heads:
        line = f"HPUB {subject} {len(head)} {len(head)}\r\n".encode()
        writer.write(b"".join((line, head, b"\r\n")))
    writer.write(b"PING\r\n")
    while await reader.readline() != b"PONG\r\n":
        pass
    writer.close()
    await writer.wait_closed()
