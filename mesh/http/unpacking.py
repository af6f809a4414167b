"""Packed bodies of HTTP, unpacked piece by piece and up to a limit."""

from __future__ import annotations

import zlib
from typing import Final

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
