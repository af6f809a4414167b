"""Rate at which a backlog is worked off exactly once, beside plain programs at least once.

W1 reads JSON events, filters, projects, and publishes one event a message.  W2 averages by key in
each second.  All programs find the whole input in the stream, on the same server, one after the
other.

Two instances of W2 read what another group divides among them, and its events have the time at
which it stores them.  So their last window ends a second after the last event.  A query beside the
window shows when each partition has read its last event, and that is the end of the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson
from nats.js.errors import NotFoundError

from bench.connector.harness import Figure
from bench.flow import c_peer, plain
from bench.mesh import harness
from tests.support.secured import FEEDER

if TYPE_CHECKING:
    from bench.mesh.harness import View

EVENTS: Final = 1_000_000
#: Time without further output after which there is none, seconds.
_QUIET_S: Final = 1.5
#: Messages at the end of the output of W2, one of which has the key ``end``.
_TAIL: Final = 200
#: Last events for two instances of W2, with enough keys for all partitions.
_LAST: Final = 64

#: Subjects of the plain programs, where processes of the mesh may publish.
_PLAIN_IN, _PLAIN_OUT = "mesh.plain.in", "mesh.plain.out"

_HEAD: Final = """
@App:name('{name}')
define stream Input (n long, v double, k string);
@dist(execGroup='w', parallel='{parallel}')
"""
_MEANS: Final = "select k, avg(v) as mean group by k insert into Output;"
#: By kind and number of instances.  Two instances of a window are given their keys.
APPS: Final = {
    ("filter", 1): _HEAD + "from Input[v >= 0] select n, v * 2 as w, k insert into Output;",
    ("filter", 2): _HEAD + "from Input[v >= 0] select n, v * 2 as w, k insert into Output;",
    ("average", 1): _HEAD + f"from Input#window.timeBatch(1 sec) {_MEANS}",
    ("average", 2): f"{_HEAD}partition with (k of Input) begin"
    f" from Input#window.timeBatch(1 sec) {_MEANS}"
    " from Input[v < 0] select k insert into Last; end;",
}
#: Label, and the target of the ratio to the plain program.
_KINDS: Final = {"filter": ("W1", 0.6), "average": ("W2", 0.5)}


@dataclass(frozen=True)
class WorkedOff:
    """Duration and processor time of a backlog's work."""

    events: int
    #: From the start of the app's instances until they run, seconds.
    placed_s: float
    #: From then to the last output, seconds.
    took_s: float
    #: Processor time from the start of the instances to the last output: of the worker with all its
    #: processes, of its JVM alone, and of NATS, seconds.
    worker_s: float
    jvm_s: float
    nats_s: float

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.took_s

    def per_million(self, seconds: float) -> float:
        """Seconds for a million events."""
        return seconds / self.events * 1e6

    @property
    def note(self) -> str:
        """Size, and what it cost."""
        worker, jvm, nats = map(self.per_million, (self.worker_s, self.jvm_s, self.nats_s))
        return (
            f"{self.events:,} events; placed in {self.placed_s:.1f} s; CPU s per million: worker "
            f"{worker:.1f}, of that JVM {jvm:.1f}, NATS {nats:.1f}"
        )


async def measure(events: int = EVENTS) -> list[Figure]:
    """W1 and W2, ours with one and two instances, plain Python and C."""
    figures = []
    async with harness.mesh(1) as view:
        for kind, (label, target) in _KINDS.items():
            async with harness.turn():
                python, c = await _plain(view, kind, events)
            for parallel in (1, 2):
                done = await worked_off(view, label, kind, parallel, events)
                instances = "" if parallel == 1 else ", two instances"
                name = f"{label}{instances}, exactly once, beside plain Python at least once"
                figures.append(
                    Figure(name, done.rate / 1000, "k/s", target, limit=python / 1000,
                           note=done.note)
                )  # fmt: skip
            if c is not None:
                figures.append(Figure(f"{label}, C program at least once", c / 1000, "k/s"))
    return figures


async def worked_off(view: View, label: str, kind: str, parallel: int, events: int) -> WorkedOff:
    """Let an app work off a backlog of ``events``."""
    async with harness.turn():
        return await _worked_off(view, label, kind, parallel, events)


async def _worked_off(view: View, label: str, kind: str, parallel: int, events: int) -> WorkedOff:
    app = f"{label}P{parallel}"
    # The instances are placed when their input is there.
    await view.service.order_node("w1", "cordoned")
    await view.service.deploy(APPS[kind, parallel].format(name=app, parallel=parallel))
    is_divided = (kind, parallel) == ("average", 2)
    await _fill(view, f"mesh.{app}.Input", events, _LAST if is_divided else 0)
    before = _cpu_s(view)
    opened_s = time.perf_counter()
    await view.service.order_node("w1", "open")
    await view.until_running(app)
    started_s = time.perf_counter()
    if is_divided:
        ended_s = await _until_last(view, app, "Last", _LAST)
    else:
        ended_s = await _until_last(view, app, "Output", events + 1 if kind == "filter" else 0)
    used = (b - a for a, b in zip(before, _cpu_s(view), strict=True))
    await view.service.undeploy(app)
    return WorkedOff(events, started_s - opened_s, ended_s - started_s, *used)


async def _fill(view: View, subject: str, events: int, last: int = 0) -> None:
    """Store the events, and one with the key ``end`` that is alone in its second.

    If ``last`` is not 0, so many with keys of their own and a negative value follow instead.
    """
    await asyncio.to_thread(plain.fill, view.access(FEEDER), subject, events)
    await asyncio.sleep(2.0)
    for number in range(last):
        await view.js.publish(subject, b'{"n": -1, "v": -1.0, "k": "last-%d"}' % number)
    if not last:
        await view.js.publish(subject, b'{"n": -1, "v": 0.0, "k": "end"}')


async def _until_last(view: View, app: str, output: str, events: int) -> float:
    """The time of the last output, on the clock of ``perf_counter``, seconds.

    Args:
        view: of the mesh.
        app: its name; of two instances either may be the last.
        output: the stream of the output.
        events: number of output events; 0 if it is unknown, and output ends when there is no more
            for some time after the one with the key ``end``.
    """
    stream, subject = f"mesh-{app}-{output}", f"mesh.{app}.{output}"
    last, at_s = 0, 0.0
    while True:
        await asyncio.sleep(0.02)
        now_s = time.perf_counter()
        info = await view.js.stream_info(stream, subjects_filter=subject)
        # Markers are no output, and the last one comes up to a second later.
        count = (info.state.subjects or {}).get(subject, 0)
        if count != last:
            last, at_s = count, now_s
            if events and count == events:
                return at_s
        elif events or now_s - at_s <= _QUIET_S:
            continue
        elif await _has_end(view, stream, info.state.last_seq):
            return at_s


async def _has_end(view: View, stream: str, last: int) -> bool:
    """Whether one of the last messages has the key ``end``."""
    for sequence in range(last, max(0, last - _TAIL), -1):
        with contextlib.suppress(NotFoundError):
            message = await view.js.get_msg(stream, sequence)
            if orjson.loads(message.data or b"{}").get("k") == "end":
                return True
    return False


async def _plain(view: View, kind: str, events: int) -> tuple[float, float | None]:
    """Events per second of the plain programs in Python and in C, None without a compiler."""
    await view.js.add_stream(name="plain-in", subjects=[_PLAIN_IN], num_replicas=view.replicas)
    await view.js.add_stream(name="plain-out", subjects=[_PLAIN_OUT], num_replicas=view.replicas)
    try:
        await _fill(view, _PLAIN_IN, events)
        job = plain.Job(view.access(FEEDER), "plain-in", events + 1, _PLAIN_OUT, kind)
        python_s = await asyncio.to_thread(plain.run, job)
        c_s = await asyncio.to_thread(c_peer.run, job)
        return events / python_s, None if c_s is None else events / c_s
    finally:
        await view.js.delete_stream("plain-in")
        await view.js.delete_stream("plain-out")


def _cpu_s(view: View) -> tuple[float, float, float]:
    """Processor time so far of the worker with all its processes, its JVM, and NATS, seconds."""
    worker = harness.tree(view.processes.pid("w1"))
    jvm = [process for process in worker if harness.kind_of(process) == "jvm"]
    return harness.cpu_s(worker), harness.cpu_s(jvm), harness.cpu_s(view.server_processes)
