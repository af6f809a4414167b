"""Samples in memory at one resolution, for each app, group, instance and node; bounded in bytes.

    samples ──▶ the present block: rows of 32-bit floats
                     │ after 60 rows
                     ▼
                blocks: 16-bit floats, compressed; the oldest are dropped

A number keeps 8 bits of its fraction: an error of 0.8 % at most, and whole numbers up to 256 are
exact.  A block without a change compresses to some 25 bytes.  If all blocks together exceed the
bound, the oldest block of every series is dropped: the history becomes shorter, never thinner.

Longer history from the Prometheus that scrapes the managers (``manager.prometheus_url``).
"""

from __future__ import annotations

import json
import math
import zlib
from array import array
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.http.web_answers import ask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.model.values import JsonMapping


#: Age of the oldest sample of a history by the second, seconds.
SPAN_S: Final = 3600
#: Rows of a block.
BLOCK_ROWS: Final = 60
#: Size of a block's Python objects besides its bytes: measured with ``tracemalloc``.
OVERHEAD_BYTES: Final = 110

#: ``app``, ``group``, ``instance`` or ``node``, and a name: ``Shop``, ``Shop/sums``, ``worker/w1``.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one series, each the mean of ``step_s`` seconds; None where nothing is known."""

    #: Of the first value, seconds.
    start_s: int
    step_s: int
    #: By name of the field; all of one length.
    values: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class _Block:
    #: Of the first row: its time in steps of the history, as all times below.
    start: int
    rows: int
    data: bytes


@dataclass(slots=True)
class _Track:
    """One series: blocks and the rows of the present one.

    A row that comes again is counted, and written with the next other one.
    """

    width: int
    start: int
    #: Number of rows in the present block: the first are written, the others equal ``last``.
    count: int = 0
    rows: array[float] = field(default_factory=lambda: array("f"))
    last: Sequence[float] = ()
    blocks: deque[_Block] = field(default_factory=deque)

    @property
    def next(self) -> int:
        return self.start + self.count

    @property
    def bytes(self) -> int:
        packed = sum(len(block.data) + OVERHEAD_BYTES for block in self.blocks)
        return packed + self.rows.itemsize * BLOCK_ROWS * self.width + OVERHEAD_BYTES

    def add(self, at: int, row: Sequence[float]) -> None:
        if self.count and not 0 <= at - self.next < BLOCK_ROWS:
            self._seal()
        if not self.count:
            self.start = at
        if at > self.next:
            self._write()
            self.rows.extend([math.nan] * (at - self.next) * self.width)
            self.count = at - self.start
        if row is not self.last:
            self._write()
            self.last = row
        self.count += 1
        if self.count >= BLOCK_ROWS:
            self._seal()

    def drop_before(self, at: int) -> None:
        while self.blocks and self.blocks[0].start + self.blocks[0].rows <= at:
            self.blocks.popleft()

    def read(self, since: int, until: int) -> tuple[int, array[float]]:
        """The time of the first known row from ``since`` on, and all rows from there, flat.

        A row of which nothing is known is of NaN.
        """
        self._write()
        first = max(since, self.blocks[0].start if self.blocks else self.start)
        flat = array("f", [math.nan]) * (max(0, until - first) * self.width)
        for block in self.blocks:
            if block.start + block.rows > first and block.start < until:
                self._copy(block.start, _unpacked(block.data), first, until, flat)
        self._copy(self.start, self.rows, first, until, flat)
        return first, flat

    def _copy(
        self, start: int, rows: array[float], first: int, until: int, flat: array[float]
    ) -> None:
        begin, end = max(start, first), min(until, start + len(rows) // self.width)
        if begin < end:
            width = self.width
            part = rows[(begin - start) * width : (end - start) * width]
            flat[(begin - first) * width : (end - first) * width] = part

    def _write(self) -> None:
        repeated = self.count - len(self.rows) // self.width
        self.rows.extend(array("f", self.last) * repeated)

    def _seal(self) -> None:
        self._write()
        self.blocks.append(_Block(self.start, self.count, _packed(self.rows)))
        self.start += self.count
        self.count = 0
        del self.rows[:]


@dataclass(eq=False, repr=False)
class MetricsHistory:
    """Series by key."""

    #: Names of the values of each kind of key.
    _fields: Mapping[str, Sequence[str]]
    #: Bound of all series together.
    _bytes_max: int
    #: Time of a row, and age of the oldest one, seconds.
    step_s: int = 1
    span_s: int = SPAN_S
    _tracks: dict[Key, _Track] = field(default_factory=dict)
    #: Times in steps.
    _swept: int = 0
    _oldest: int = 0
    #: As of the last block.
    bytes: int = 0

    @property
    def oldest_s(self) -> int:
        """Start of what is kept; later than ``span_s`` ago if the bound was met."""
        return self._oldest * self.step_s

    def add(self, at_s: int, samples: Mapping[Key, Sequence[float]]) -> None:
        """Add the rows of one step; a step that was added already is ignored."""
        at = at_s // self.step_s
        for key, row in samples.items():
            track = self._tracks.get(key)
            if track is None:
                track = self._tracks[key] = _Track(len(self._fields[key[0]]), at)
            if at >= track.next:
                track.add(at, row)
        if at - self._swept >= BLOCK_ROWS:
            self._swept = at
            self._sweep(at)

    def read(self, key: Key, since_s: int, until_s: int, step_s: int) -> Series | None:
        """Means over steps from ``since_s`` to before ``until_s``; None for an unknown key.

        ``step_s`` is a multiple of the history's own step.
        """
        track = self._tracks.get(key)
        if track is None:
            return None
        start_s = since_s - since_s % step_s
        count = max(0, -(-(until_s - start_s) // step_s))
        factor, width = step_s // self.step_s, track.width
        start = start_s // self.step_s
        first, flat = track.read(start, start + count * factor)
        # Of each step the places of its rows: those before the first known one are none.
        places = [max(0, start + step * factor - first) * width for step in range(count + 1)]
        values = {
            name: [
                _mean(flat[begin + index : end : width]) if begin < end else None
                for begin, end in pairwise(places)
            ]
            for index, name in enumerate(self._fields[key[0]])
        }
        return Series(start_s, step_s, values)

    def keys(self) -> list[Key]:
        """The keys of all series."""
        return list(self._tracks)

    def _sweep(self, at: int) -> None:
        self._oldest = max(self._oldest, at - self.span_s // self.step_s)
        self._drop()
        while self.bytes > self._bytes_max and self._oldest < at:
            self._oldest += BLOCK_ROWS
            self._drop()

    def _drop(self) -> None:
        self.bytes = 0
        for key, track in list(self._tracks.items()):
            track.drop_before(self._oldest)
            if not track.blocks and track.next <= self._oldest:
                del self._tracks[key]
            else:
                self.bytes += track.bytes


def _mean(values: array[float]) -> float | None:
    """The mean of what is known; None for nothing."""
    added, count = sum(values), len(values)
    if math.isnan(added):
        numbers = [value for value in values if not math.isnan(value)]
        added, count = sum(numbers), len(numbers)
    return round(added / count, 6) if count else None


def _packed(rows: array[float]) -> bytes:
    """The upper halves of 32-bit floats, the first bytes of all before the second ones."""
    data = rows.tobytes()
    return zlib.compress(data[3::4] + data[2::4], 1)


def _unpacked(data: bytes) -> array[float]:
    halves = zlib.decompress(data)
    count = len(halves) // 2
    whole = bytearray(4 * count)
    whole[3::4] = halves[:count]
    whole[2::4] = halves[count:]
    flat = array("f")
    flat.frombytes(bytes(whole))
    return flat


#: Time limit of a request, seconds.
LIMIT_S: Final = 10.0
#: Expressions by field; ``{of}`` is the selector, ``{window}`` the span of a rate.
_FLOW: Final = {
    "events_in": "sum(rate(mesh_instance_events_in_total{of}[{window}s]))",
    "events_out": "sum(rate(mesh_instance_events_out_total{of}[{window}s]))",
    "errors": "sum(rate(mesh_instance_events_failed_total{of}[{window}s]))",
    "backlog": "sum(mesh_instance_backlog_messages{of})",
    "backlog_s": "max(mesh_instance_backlog_seconds{of})",
    "batch_s": "histogram_quantile(0.5, sum by (le) "
    "(rate(mesh_instance_batch_seconds_bucket{of}[{window}s])))",
    **{
        field: f"histogram_quantile({share}, sum by (le) "
        "(rate(mesh_instance_latency_seconds_bucket{of}[{window}s])))"
        for field, share in (("latency_p50_s", 0.5), ("latency_p99_s", 0.99))
    },
}
_NODE: Final = {
    "cpu": "mesh_node_cpu_ratio{of}",
    "process_cpu": "mesh_node_process_cpu_ratio{of}",
    "memory_bytes": "mesh_node_memory_bytes{of}",
    "memory": "mesh_node_memory_ratio{of}",
    "load_1m": "mesh_node_load1{of}",
}
EXPRESSIONS: Final = {
    "cluster": _FLOW,
    "app": _FLOW,
    "group": _FLOW,
    "instance": _FLOW,
    "node": _NODE,
}


async def query_range(
    url: str, kind: str, name: str, since_s: int, until_s: int, step_s: int
) -> dict[str, list[float | None]]:
    """Values by field, one for each step; MESH-A502 when Prometheus does not answer."""
    # Only managers with a Prometheus need it.
    import httpx

    queries = expressions(kind, name, step_s)
    count = -(-(until_s - since_s) // step_s)
    values = {}
    try:
        async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S) as client:
            for field, query in queries.items():
                params: dict[str, str | int] = {
                    "query": query,
                    "start": since_s,
                    "end": until_s - 1,
                }
                params["step"] = step_s
                answer = await ask(client, "GET", "/api/v1/query_range", params=params)
                answer.response.raise_for_status()
                result = json.loads(answer.whole())["data"]["result"]
                values[field] = aligned(result, since_s, step_s, count)
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise MeshError(
            "MESH-A502",
            f"Prometheus at {url} did not answer",
            detail=f"{type(error).__name__}: {error}.",
            hint="See manager.prometheus_url.  The last week is kept by the managers themselves.",
        ) from error
    return values


def expressions(kind: str, name: str, step_s: int) -> dict[str, str]:
    """The queries for an app, a group, an instance or a node."""
    first, _, second = name.partition("/")
    labels = {
        "cluster": {},
        "app": {"app": name},
        "group": {"app": first, "group": second},
        "instance": {"instance": name},
        "node": {"role": first, "node": second},
    }[kind]
    chosen = ",".join(f'{label}="{_quoted(value)}"' for label, value in labels.items())
    # A rate needs two samples: four scrapes of 5 s, or a whole step.
    window = str(max(20, step_s))
    return {
        field: query.replace("{of}", f"{{{chosen}}}").replace("{window}", window)
        for field, query in EXPRESSIONS[kind].items()
    }


def aligned(
    result: Sequence[JsonMapping], since_s: int, step_s: int, count: int
) -> list[float | None]:
    """The values of a matrix with one series at most, by step."""
    values: list[float | None] = [None] * count
    for at_s, text in result[0]["values"] if result else ():
        index = (int(at_s) - since_s) // step_s
        value = float(text)
        if 0 <= index < count and value == value:
            values[index] = value
    return values


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
