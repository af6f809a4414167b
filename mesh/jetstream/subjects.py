"""The subjects of a stream's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from nats.js import JetStreamContext

#: Timeout of an answer, seconds.
_LIST_S: Final = 20.0


async def subjects_of(js: JetStreamContext, stream: str, pattern: str) -> list[str]:
    """The subjects that ``pattern`` matches and that have messages; NotFoundError without a stream.

    The server gives 100,000 at a time.
    """
    subjects: list[str] = []
    while True:
        query = orjson.dumps({"subjects_filter": pattern, "offset": len(subjects)})
        call = f"{js._prefix}.STREAM.INFO.{stream}"
        info = await js._api_request(call, query, timeout=_LIST_S)
        some = info["state"].get("subjects") or {}
        subjects += some
        if not some or len(subjects) >= info.get("total", 0):
            return subjects
