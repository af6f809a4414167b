"""The aggregation of the app in PostgreSQL: what it has to hold, and what queries find in it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from nats.errors import Error as NatsError

from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.cluster import Outside

#: Its name among the streams that are compared.
TOTALS: Final = "Totals"
#: ``{store}``: the annotation with the database.
TEXT: Final = """@dist(execGroup='stored') {store}
define aggregation Totals from S select k, sum(a) as total, count() as n group by k
aggregate every sec...day;
"""
_QUERY: Final = (
    "from Totals within 0L, 4000000000000L per 'hours' select k, sum(total) as total, "
    "sum(n) as n group by k"
)
_PAUSE_S: Final = 0.5


def expected(sent: Sequence[tuple[int, dict[str, Any]]]) -> list[list[Any]]:
    """Sum and number of the events of each key."""
    sums: Counter[str] = Counter()
    for _, row in sent:
        sums[row["k"]] += row["a"]
    counts = Counter(row["k"] for _, row in sent)
    return [[key, sums[key], counts[key]] for key in sorted(counts)]


async def found(outside: Outside, app: str, stream: str, within_s: float) -> list[list[Any]]:
    """The same by a query, of a state that includes all events of ``stream``; else the last."""
    last = (await outside.js.stream_info(stream)).state.last_seq
    asked = json.dumps({"query": _QUERY, "min_position": {stream: last}}).encode()
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            reply = await outside.client.request(names.query_subject(app), asked, timeout=10)
            answer = json.loads(reply.data)
        except NatsError as error:
            answer = {"message": f"{error!r}"}
        if "records" in answer:
            return sorted(answer["records"])
        if time.monotonic() > deadline_s:
            return [["no answer", answer.get("message"), 0]]
        await asyncio.sleep(_PAUSE_S)
