"""Answers to our HTTP requests, read up to a limit of bytes once they are unpacked.

Connectors and managers ask by it.  The request accepts no packed answer; one that is packed all the
same is unpacked up to the limit.  Whatever is larger is not read to its end.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx


#: Bytes of an answer whose content is a reason, a token or a schema.
ANSWER_MAX: Final = 1 << 20
_ENCODING: Final = "Accept-Encoding"

#: Windows of zlib: gzip alone, and gzip or zlib by the data's own header.
GZIP: Final = 31
GZIP_OR_ZLIB: Final = 47
#: Packed bytes that are unpacked together: what follows the end of a member is copied.
_PIECE: Final = 4096


class Unpacker:
    """Reads gzip data of any number of members, or data of zlib."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._member = zlib.decompressobj(window)

    @property
    def is_whole(self) -> bool:
        """Whether the data that was read ends with a member."""
        return self._member.eof

    def feed(self, data: bytes, room: int) -> bytes:
        """The next bytes, at most ``room``.  Raises ``zlib.error``."""
        content = bytearray()
        for at in range(0, len(data), _PIECE):
            piece = data[at : at + _PIECE]
            while piece and len(content) < room:
                if self._member.eof:
                    # A program that writes blocks fills the last one with zeros.
                    piece = piece.lstrip(b"\0")
                    if not piece:
                        break
                    self._member = zlib.decompressobj(self._window)
                content += self._member.decompress(piece, room - len(content))
                piece = self._member.unused_data
        return bytes(content)


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """An answer, with the content that was read."""

    #: Its status and headers; the content is not there.
    response: httpx.Response
    content: bytes
    #: The reason why the content is not the whole one; empty if it is.
    flaw: str = ""

    def whole(self) -> bytes:
        """The content; ValueError with the flaw if that is not all."""
        if self.flaw:
            raise ValueError(f"the answer can't be read: {self.flaw}")
        return self.content

    def text(self, length: int) -> str:
        """The beginning of the content, by the character set of the answer."""
        name = self.response.charset_encoding or "utf-8"
        try:
            return self.content[: 4 * length].decode(name, "replace")[:length]
        except LookupError:
            return self.content[: 4 * length].decode(errors="replace")[:length]


async def ask(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    limit: int = ANSWER_MAX,
    *,
    headers: Sequence[tuple[str, str]] = (),
    **request: Any,
) -> WebAnswer:
    """Send a request, and read its answer up to ``limit`` bytes.

    Raises:
        httpx.HTTPError, httpx.InvalidURL, OSError: as the client does.
    """
    all_headers = list(headers)
    if all(name.lower() != _ENCODING.lower() for name, _ in all_headers):
        all_headers.append((_ENCODING, "identity"))
    # Beyond ASCII, HTTP has octets: those of UTF-8 are what most servers expect.
    octets = [(name.encode("ascii"), value.encode()) for name, value in all_headers]
    async with client.stream(method, url, headers=octets, **request) as answer:
        content, flaw = await _content(answer, limit)
    return WebAnswer(answer, content, flaw)


async def _content(answer: httpx.Response, limit: int) -> tuple[bytes, str]:
    """The content of an answer, or its beginning and the reason why that is not all."""
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        return b"", f'it has the encoding "{encoding[:40]}", which is not read'
    packed = None if encoding in ("", "identity") else Unpacker(GZIP_OR_ZLIB)
    content = bytearray()
    async for chunk in answer.aiter_raw():
        room = limit + 1 - len(content)
        try:
            content += packed.feed(chunk, room) if packed is not None else chunk[:room]
        except zlib.error:
            return bytes(content), f'it does not have its encoding "{encoding}"'
        if len(content) > limit:
            return bytes(content[:limit]), f"it has more than {limit} bytes"
    if packed is not None and content and not packed.is_whole:
        return bytes(content), "it is cut off"
    return bytes(content), ""
