"""An app of nothing much, run once, so that the first real one finds everything loaded.

The first streaming query of a JVM with a Python source and sink takes 3-9 s, the second half a
second: the difference is class loading, code generation, and Python processes that Spark starts for
each kind of work and then keeps.  A worker pays it before it says that it is ready.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from mesh.model.cluster import Assignment
from mesh.plan.build import plan
from mesh.spark import query
from mesh.spark.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mesh.model.app import AppSpec

_TEXT: Final = """
@App:name('{name}')
define stream Events (k int, v double, s string);
@dist(execGroup='stateful')
from Events#window.time(1 sec) select k, avg(v) as mean group by k insert into Means;
@dist(execGroup='stateless')
from Events[k >= 0 and v > 1] select k, v, s insert into Large;
"""
#: The one event it is given.
EVENT: Final = b'{"k": 1, "v": 2.0, "s": "x"}'


def app(name: str) -> AppSpec:
    """The app, with a group of each kind; its channels are to be made, and ``EVENT`` published."""
    return plan(_TEXT.format(name=name)).spec


def warm(session: SparkSession, spec: AppSpec, nats: Mapping[str, str], directory: Path) -> None:
    """Run the app until its event has passed through."""
    running = []
    for group in spec.groups:
        scratch = directory / group.name
        scratch.mkdir(parents=True)
        assignment = Assignment(
            group.instances[0], spec.name, group.name, 1, "warmup", "", epoch=1, lease_revision=0
        )
        running.append(
            query.start(
                session,
                Wiring(group, assignment),
                scratch,
                nats=nats,
                batch_rows_max=1000,
                offsets=None,
                restored=frozenset(),
            )
        )
    # ``processAllAvailable`` would wait for a further, empty trigger.
    while not all(_has_run(one) for one in running):
        time.sleep(0.02)
    for one in running:
        one.stop()


def _has_run(running: StreamingQuery) -> bool:
    failure = running.exception()
    if failure is not None:
        raise failure
    progress = running.lastProgress
    return progress is not None and progress["numInputRows"] > 0
