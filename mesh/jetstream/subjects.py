"""The subjects of a stream's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from nats.js import JetStreamContext

#: Timeout of an answer, seconds.
_LIST_S: Final = 20.0


async def subjects_of(js: JetStreamContext, stream: str, wanted: str) -> list[str]:
    """The subjects that ``wanted`` matches and that have messages; NotFoundError without a stream.

    The server gives 100,000 at a time.
    """
    found: list[str] = []
    while True:
        query = orjson.dumps({"subjects_filter": wanted, "offset": len(found)})
        call = f"{js._prefix}.STREAM.INFO.{stream}"
        info = await js._api_request(call, query, timeout=_LIST_S)
        some = info["state"].get("subjects") or {}
        found += some
        if not some or len(found) >= info.get("total", 0):
            return found
