"""Bulk counting of acks of published messages, most of which report success.

An ack is a frame of two lines: ``MSG {reply} {sid} {size}`` and a JSON object with the sequence of
the stored message.  Neither contains a line break, so lines can be counted instead of parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_END = b"}\r\n"


def counted(buffer: bytes | bytearray, replies: Sequence[bytes]) -> tuple[list[int], int] | None:
    """Count the acks at the start of ``buffer``.

    Args:
        buffer: what the server sent; what follows the last whole ack is left alone.
        replies: subjects that acks come on; none of them is the beginning of another and a space.

    Returns:
        How many came on each of ``replies``, and the bytes that they take together; None when
        anything else is among them, such as a refusal, which has to be read then.
    """
    end = buffer.rfind(_END) + len(_END)
    if end < len(_END):
        return [0] * len(replies), 0
    lines = buffer.count(b"\n", 0, end)
    total = lines // 2
    counts = [0] * len(replies)
    missing = total
    # They come in the order in which messages went out: mostly all of them on the first subject.
    for at, reply in enumerate(replies):
        if missing > 0:
            counts[at] = buffer.count(b"MSG %b " % reply, 0, end)
            missing -= counts[at]
    # A refusal is an object too, and so is what the server says of itself.
    is_plain = (
        missing == 0
        and lines == 2 * total
        and buffer.count(_END, 0, end) == total
        and buffer.find(b'"error"', 0, end) < 0
    )
    return (counts, end) if is_plain else None
