"""``python -m bench.spark_cluster``: rates on 1, 2 and 4 executors, beside a local session.

The same backlog is worked off by one app of eight instances without state and one of eight virtual
partitions.  All of it runs on this machine, NATS, the driver and Spark's own processes too: with
two cores, more executors share the same processor time.  So the table shows what distribution
costs, not how it scales.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from bench import measuring
from bench.mesh import harness
from mesh.files import scratch
from tests.support.standalone import Standalone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.mesh.harness import View

_KEYS: Final = 50
#: Messages published at once.
_CHUNK: Final = 2_000
_EXECUTORS: Final = (1, 2, 4)
#: Of an executor: one has a slot, the other is for further queries.
_CORES: Final = 2

_APPS: Final = {
    "Stateless": """@App:name('Stateless')
define stream Input (n long, k string);
@dist(execGroup='g', parallel='8')
from Input select n * 2 as m, k insert into Output;
""",
    "Keyed": """@App:name('Keyed')
define stream Input (n long, k string);
@dist(execGroup='g', parallel='8')
partition with (k of Input) begin
  from Input#window.length(100) select k, sum(n) as m insert into Output;
end;
""",
}


async def rates(count: int, settings: Mapping[str, Any]) -> dict[str, float]:
    """Events per second of each app, with a worker of these settings."""
    found: dict[str, float] = {}
    async with harness.mesh(1, **settings) as view:
        for name, text in _APPS.items():
            # The instances are placed when their input is there.
            await view.service.order_node("w1", "cordoned")
            await view.service.deploy(text)
            await _fill(view, f"mesh.{name}.Input", count)
            started_s = time.perf_counter()
            await view.service.order_node("w1", "open")
            while True:
                await asyncio.sleep(0.05)
                if await _outputs(view, name) >= count:
                    break
            found[name] = count / (time.perf_counter() - started_s)
            await view.service.undeploy(name)
    return found


async def _fill(view: View, subject: str, count: int) -> None:
    for first in range(0, count, _CHUNK):
        await asyncio.gather(
            *(
                view.js.publish(subject, b'{"n": %d, "k": "key%d"}' % (n, n % _KEYS))
                for n in range(first, min(first + _CHUNK, count))
            )
        )


async def _outputs(view: View, app: str) -> int:
    subject = f"mesh.{app}.Output"
    info = await view.js.stream_info(f"mesh-{app}-Output", subjects_filter=subject)
    return (info.state.subjects or {}).get(subject, 0)


def on_cluster(executors: int, count: int) -> dict[str, float]:
    """The rates on a cluster of so many workers, with an executor each."""
    with scratch.directory("bench-spark") as directory:
        names = [f"s{n}" for n in range(1, executors + 1)]
        spark = Standalone(directory, workers=names, cores=_CORES, memory="1100m")
        conf = directory / "driver.conf"
        conf.write_text(f"spark.executor.memory 600m\nspark.executor.cores {_CORES}\n")
        settings = {"MESH_SPARK_CONF_FILE": str(conf)}
        try:
            spark.start()
            settings["MESH_SPARK_MASTER"] = spark.url
            return asyncio.run(rates(count, settings))
        finally:
            spark.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurements and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_cluster", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="size of the backlog")
    parser.add_argument("--only", default="", help="comma list of local, 1, 2, 4")
    given = parser.parse_args(arguments)
    wanted = given.only.split(",") if given.only else ["local", *map(str, _EXECUTORS)]
    table = Table(title=f"events/s, {given.events:,} events, {os.cpu_count()} cores for everything")
    for column in ("session", *_APPS):
        table.add_column(column, justify="right")
    for name in wanted:
        is_local = name == "local"
        made = (
            asyncio.run(rates(given.events, {"MESH_SPARK_MASTER": "local[2]"}))
            if is_local
            else on_cluster(int(name), given.events)
        )
        label = "local[2]" if is_local else f"{name} executors, {name} slots"
        table.add_row(label, *(f"{made[app]:,.0f}" for app in _APPS))
    measuring.console_of().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
