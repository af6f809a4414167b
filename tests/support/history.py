"""Past events in files, and the same events in NATS."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from mesh.clock import SystemClock
from mesh.manager.backfills import Backfills
from mesh.manager.planning import Planner
from mesh.model import names
from mesh.settings import ManagerSettings, NatsSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.backups import Mesh

#: Without state, with state by key, and with state over what that emits.
METER = """@App:name('{name}')
{source}define stream Readings (device string, watt double);
@dist(execGroup='clean')
from Readings[watt >= 0.0] select device, watt insert into Clean;
@dist(execGroup='sums', partitions='4')
partition with (device of Clean) begin
from Clean#window.time(10 sec) select device, sum(watt) as total, count() as n insert into Totals;
end;
"""
#: One instance each, so that the order of all events is one.
CHAIN = """@App:name('{name}')
{source}define stream Readings (device string, watt double);
@dist(execGroup='clean')
from Readings[watt >= 0.0] select device, watt insert into Clean;
@dist(execGroup='recent')
from Clean#window.time(10 sec) select device, sum(watt) as total insert into Totals;
@dist(execGroup='last')
from Totals#window.length(50) select device, total, sum(total) as all_of_it insert into Lasts;
"""
#: The input is a stream of others.
FOREIGN = "@source(type='nats', stream='READINGS', destination='readings')\n"


def events(count: int) -> list[dict[str, Any]]:
    """Events of five devices, some of them late, one a second."""
    return [
        {
            "device": f"d{n * 7 % 5}",
            "watt": float(n % 13 - 1),
            "at": 1_700_000_000_000 + 1000 * n - (2500 if n % 11 == 0 else 0),
        }
        for n in range(count)
    ]


def parquet(path: Path, rows: Sequence[dict[str, Any]], pieces: int = 3) -> None:
    """A directory of Parquet files with timestamps, divided in the order of the rows."""
    path.mkdir(parents=True)
    kinds: dict[str, Any] = {
        "at": pa.timestamp("ms"),
        "watt": pa.float64(),
        "device": pa.string(),
    }
    step = -(-len(rows) // pieces)
    for number in range(pieces):
        some = rows[number * step : (number + 1) * step]
        pq.write_table(pa.Table.from_pylist(some, pa.schema(kinds)), path / f"{number}.parquet")


def backfills(have: Mesh, root: Path, command: Sequence[str] | None = None) -> Backfills:
    """Backfills by the manager of a test, whose files are in ``root``."""
    manager = ManagerSettings(history_dir=str(root))
    url = have.client.connected_url
    assert url is not None
    settings = replace(Settings(), nats=NatsSettings(url=url.geturl()), manager=manager)
    more = {} if command is None else {"command": command}
    return Backfills(
        have.client, have.service.deployments, Planner(settings), have.pieces, settings,
        SystemClock(), **more,
    )  # fmt: skip


async def publish(have: Mesh, subject: str, rows: Sequence[dict[str, Any]]) -> None:
    """The same events as clients publish them."""
    for row in rows:
        event = {"device": row["device"], "watt": row["watt"]}
        headers = {names.EVENT_TIME_HEADER: str(row["at"])}
        await have.client.jetstream().publish(subject, orjson.dumps(event), headers=headers)
