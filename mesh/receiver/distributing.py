"""Distribution of a sink's events among its destinations."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.connect.contract import UnavailableError
from mesh.mapping.texts import text_of

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
            left = [at for at in range(len(records)) if at not in outcomes]
            try:
                await self._ready(number)
                found = await self._sinks[number][0].write([records[at] for at in left])
                outcomes |= dict(zip(left, found, strict=True))
                return [outcomes[at] for at in range(len(records))]
            except UnavailableError as error:
                outcomes |= {left[at]: outcome for at, outcome in error.outcomes.items()}
                reasons.append(str(error))
            except OSError as error:
                reasons.append(str(error))
        raise UnavailableError("; ".join(dict.fromkeys(reasons)), outcomes=outcomes)

    async def _ready(self, number: int) -> None:
        if number not in self._open:
            sink, context = self._sinks[number]
            await sink.open(context, None)
            self._open.add(number)

    async def close(self) -> None:
        """See ``Sink``."""
        for number in list(self._open):
            self._open.discard(number)
            await self._sinks[number][0].close()
