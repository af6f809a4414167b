"""Answers to requests, and the exceptions for their errors.  No I/O here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol.transport import DisconnectedError, NoRoomError

if TYPE_CHECKING:
    from pyspark_nats.json_types import JsonObject

#: Temporary JetStream errors: no leader, no quorum, starting up.
_PASSING_CODES = frozenset({10003, 10008, 10009, 10077, 10118})
#: No room: limits of the account, and those of the server or its disk.
FULL_CODES = frozenset({10002, 10023, 10028, 10047})


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
