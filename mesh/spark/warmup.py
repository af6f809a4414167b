"""Warm-up: run a minimal app once, so that the first real one needs no class loading.

The first streaming query of a JVM with a Python source and sink takes 3-9 s, the second half a
second.  The difference is class loading, code generation, and Python processes that Spark starts
for each kind of work and then keeps.  A worker warms up before it reports that it is ready.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.model.cluster import Assignment, InstanceState
from mesh.plan.build import plan
from mesh.spark.dedicated_query import query
from mesh.spark.instance_context import InstanceContext
from mesh.spark.instance_io import InstanceIO
from mesh.spark.shared_query.instance import SharedInstance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mesh.model.app import AppSpec
    from mesh.model.cluster import InstanceStatus
    from mesh.spark.instance_context import InstanceOptions
    from mesh.spark.shared_query.query import SharedQuery

_TEXT: Final = """
@App:name('{name}')
define stream Events (k int, v double, s string);
@dist(execGroup='stateful')
from Events#window.time(1 sec) select k, avg(v) as mean group by k insert into Means;
@dist(execGroup='stateless')
from Events[k >= 0 and v > 1] select k, v, s insert into Large;
"""
#: Time limit for the event in a shared query, seconds.
_PASSES_S: Final = 60.0
#: The event that the app processes.
EVENT: Final = b'{"k": 1, "v": 2.0, "s": "x"}'


def app(name: str) -> AppSpec:
    """The app, with a group of each kind; callers create its channels and publish ``EVENT``."""
    return plan(_TEXT.format(name=name)).spec


def warm(session: SparkSession, spec: AppSpec, nats: Mapping[str, str], directory: Path) -> None:
    """Run the app until its event has passed through."""
    running = []
    for io in _wirings(spec, epoch=1):
        scratch = directory / io.group.name
        scratch.mkdir(parents=True)
        running.append(
            query.start(
                session,
                io,
                scratch,
                nats=nats,
                batch_rows_max=1000,
                offsets=None,
                restored=frozenset(),
            )[0]
        )
    # ``processAllAvailable`` would wait for a further, empty trigger.
    while not all(_has_run(one) for one in running):
        time.sleep(0.02)
    for one in running:
        one.stop()


def warm_shared_query(
    shared_query: SharedQuery, spec: AppSpec, options: InstanceOptions, directory: Path
) -> None:
    """Run the app in the shared query until its event has passed through.

    Raises:
        MeshError: MESH-S102 when that exceeds the time limit.
    """
    passed = threading.Semaphore(0)

    def report(status: InstanceStatus) -> None:
        if status.state is InstanceState.RUNNING and status.messages_in:
            passed.release()

    running = [
        SharedInstance(
            shared_query,
            InstanceContext(
                io,
                options,
                directory / "carried" / io.group.name,
                _NoSnapshots(),
                report,
                SystemClock(),
            ),
        )
        for io in _wirings(spec, epoch=2)
    ]
    for one in running:
        one.start()
    for _ in running:
        if not passed.acquire(timeout=_PASSES_S):
            raise MeshError("MESH-S102", f"a shared query did not run within {_PASSES_S:g} s")
    for one in running:
        one.stop()
    for one in running:
        one.join()


class _NoSnapshots:
    """A ``SnapshotStore`` that keeps nothing."""

    def restore(self, part: str, piece_path: Callable[[str], Path]) -> bytes | None:
        return None

    def save(self, part: str, manifest: bytes, pieces: Mapping[str, Path | str]) -> None:
        return

    def stored(self, part: str) -> Mapping[str, str]:
        return {}

    def discard(self, part: str, names: Collection[str]) -> None:
        return

    def forget(self, part: str) -> None:
        return

    def bounds(self, streams: Collection[str]) -> dict[str, tuple[int, int]]:
        return dict.fromkeys(streams, (1, 0))

    def ends(self, streams: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(streams, 0)


def _wirings(spec: AppSpec, epoch: int) -> Iterator[InstanceIO]:
    for group in spec.groups:
        name = group.instances[0]
        yield InstanceIO(
            group,
            Assignment(name, spec.name, group.name, 1, "warmup", "", epoch=epoch, lease_revision=0),
        )


def _has_run(running: StreamingQuery) -> bool:
    failure = running.exception()
    if failure is not None:
        raise failure
    progress = running.lastProgress
    return progress is not None and progress["numInputRows"] > 0
