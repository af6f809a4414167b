"""Answers to requests, and the exceptions for their errors.  No I/O here.

Bulk counting of acks of published messages, most of which report success.

An ack is a frame of two lines: ``MSG {reply} {sid} {size}`` and a JSON object with the sequence of
the stored message.  Neither contains a line break, so lines can be counted instead of parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol.transport import DisconnectedError, NoRoomError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_nats.json_types import JsonObject


#: Temporary JetStream errors: no leader, no quorum, starting up.
_PASSING_CODES = frozenset({10003, 10008, 10009, 10077, 10118})
#: No room: limits of the account, and those of the server or its disk.
FULL_CODES = frozenset({10002, 10023, 10028, 10047})

_END = b"}\r\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to a request."""

    header: bytes
    data: bytes

    def json(self) -> JsonObject:
        """The payload of an API answer.

        Raises:
            RefusedError: the answer is an error; DisconnectedError: a temporary one.
        """
        answer: JsonObject = orjson.loads(self.data)
        error = answer.get("error")
        if error:
            raise refusal(error)
        return answer


def refusal(error: JsonObject) -> Exception:
    """The exception for an API error."""
    code = int(error.get("err_code", 0))
    description = str(error.get("description", "unknown error"))
    if description == "message too large":
        # It has the code of a failed store, but the store will not grow.
        return RefusedError(
            f"the server refused: {description}",
            hint="A stream in files holds messages of less than 32 MB, whatever max_payload is.",
            err_code=code,
        )
    if code in FULL_CODES or "no space left" in description:
        return NoRoomError(f"JetStream has no room: {description}")
    if code in _PASSING_CODES or int(error.get("code", 0)) == 503:
        return DisconnectedError(description)
    return RefusedError(f"the server refused: {description}", err_code=code)


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
