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
        buffer: received bytes; those after the last whole ack are ignored.
        replies: subjects of acks; none of them is the beginning of another and a space.

    Returns:
        The number of acks on each of ``replies``, and their total bytes.  None if there is anything
        else, such as a refusal, which has to be parsed then.
    """
    end = buffer.rfind(_END) + len(_END)
    if end < len(_END):
        return [0] * len(replies), 0
    lines = buffer.count(b"\n", 0, end)
    total = lines // 2
    counts = [0] * len(replies)
    missing = total
    # Acks arrive in publishing order: mostly all of them on the first subject.
    for at, reply in enumerate(replies):
        if missing > 0:
            counts[at] = buffer.count(b"MSG %b " % reply, 0, end)
            missing -= counts[at]
    # A refusal is an object too, and so is the server's ``INFO``.
    is_plain = (
        missing == 0
        and lines == 2 * total
        and buffer.count(_END, 0, end) == total
        and buffer.find(b'"error"', 0, end) < 0
    )
    return (counts, end) if is_plain else None
