"""Distribution of a sink's events among its destinations."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.connect.contract import FailedRecordsError, RefusedRecordsError, UnavailableError
from mesh.mapping.texts import text_of
from mesh.receiver.outcomes import described, is_outage, reason_of, written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from mesh.connect.contract import Context, Record, Sink


@lru_cache(maxsize=65_536)
def java_hash(text: str) -> int:
    """Java's hash code of a string, as a signed number of 32 bits."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + units[at] * 256 + units[at + 1]) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


def destination_of(text: str, count: int) -> int:
    """The destination of a key's text, from 0: Java's ``abs(hashCode % count)``."""
    return abs(java_hash(text)) % count


def partitioned(key: str, count: int, number: int) -> Callable[[pa.RecordBatch], Any]:
    """A function that marks the rows of destination ``number``, from 0, of ``count``."""

    def choose(rows: pa.RecordBatch) -> Any:
        texts = text_of(rows.column(key)).to_pylist()
        return np.array([destination_of(text, count) == number for text in texts], bool)

    return choose


class RoundRobin:
    """A sink of several destinations: each batch goes to the next one that answers."""

    def __init__(self, sinks: Sequence[Sink], contexts: Sequence[Context]) -> None:
        self.state: Mapping[str, Any] | None = None
        self._sinks = list(zip(sinks, contexts, strict=True))
        self._open: set[int] = set()
        self._next = 0

    async def open(self, context: Context, state: Mapping[str, Any] | None) -> None:
        """See ``Sink``; each destination is opened when its first batch is due."""

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """See ``Sink``."""
        outcomes: dict[int, str | None] = {}
        reasons = []
        for _ in self._sinks:
            number, self._next = self._next, (self._next + 1) % len(self._sinks)
            try:
                await self._ready(number)
                await self._write(number, records, outcomes)
                return [outcomes[at] for at in range(len(records))]
            except Exception as error:
                if not is_outage(error):
                    raise FailedRecordsError(described(error), outcomes) from error
                reasons.append(reason_of(error))
        raise UnavailableError("; ".join(dict.fromkeys(reasons)), outcomes=outcomes)

    async def _write(
        self, number: int, records: Sequence[Record], outcomes: dict[int, str | None]
    ) -> None:
        """Write the records that have no outcome yet, and add theirs."""
        while left := [at for at in range(len(records)) if at not in outcomes]:
            try:
                results = await written(self._sinks[number][0], [records[at] for at in left])
                outcomes |= dict(zip(left, results, strict=True))
            except RefusedRecordsError as error:
                outcomes |= {left[at]: reason for at, reason in error.reasons.items()}
            except (UnavailableError, FailedRecordsError) as error:
                outcomes |= {left[at]: outcome for at, outcome in error.outcomes.items()}
                if isinstance(error, UnavailableError) and error.is_lost:
                    await self._close(number)
                raise

    async def _ready(self, number: int) -> None:
        if number not in self._open:
            sink, context = self._sinks[number]
            await sink.open(context, None)
            self._open.add(number)

    async def close(self) -> None:
        """See ``Sink``."""
        for number in list(self._open):
            await self._close(number)

    async def _close(self, number: int) -> None:
        self._open.discard(number)
        await self._sinks[number][0].close()
