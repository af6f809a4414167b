"""An hour of load, churn and kills: does a process grow, and is each output row right?

Of the apps a quarter each filters, sums hundreds, counts by key in two instances, and finds a
pattern.  The events of an app are numbered, so its outputs are known without another run.  Every
15 s an app comes and the one before it goes; every 5 minutes a worker or a manager is killed and
started again.  Worker w1 and manager m1 live to the end; they and the servers are sampled.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from bench.connector.harness import Figure
from bench.connector.plain import acks
from bench.connector.wire import SILENCE_S, Wire
from bench.mesh import harness
from bench.mesh.thousand import api, cost, known, undeploy
from tests.support.secured import FEEDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import httpx

    from bench.connector.wire import Access
    from bench.mesh.harness import View

APPS: Final = 24
#: Events a second, of all apps.
RATE: Final = 5_000
MINUTES: Final = 60.0
_KEYS: Final = 16
_HEAD: Final = "@App:name('{name}') define stream Input (n long, k int);"
#: By kind, in the order in which the apps have them.
TEXTS: Final = {
    "filter": _HEAD + "from Input[n % 2 == 0] select n, n * 2 as m insert into Output;",
    "window": _HEAD + "from Input#window.lengthBatch(100) select sum(n) as s, count() as c"
    " insert into Output;",
    "keyed": _HEAD + "@dist(execGroup='keyed', parallel='2') partition with (k of Input) begin"
    " from Input select k, count() as c, sum(n) as s insert into Output; end;",
    "pattern": _HEAD + "from every e1=Input[n % 10 == 0] -> e2=Input[n % 10 == 5]"
    " select e1.n as a, e2.n as b insert into Output;",
}
_CHURN_S: Final = 15.0
_KILL_S: Final = 300.0
_SAMPLE_S: Final = 10.0
#: Part of the time before growth is looked for.
_WARM: Final = 1 / 3
#: Growth in ten minutes that is none, %.
_FLAT: Final = 0.5
#: Messages that may not be stored yet, and of how many of an app one is acknowledged.
_WINDOW: Final = 4_000
_ACKNOWLEDGED: Final = 50
_TICK_S: Final = 0.01
#: Time limit for the last outputs, seconds.
_REST_S: Final = 300.0


@dataclass(frozen=True)
class Sample:
    """Use of memory, files and JetStream by the processes that live to the end."""

    at_s: float
    #: MB by kind of process; a page that several share counts once.
    memory_mb: Mapping[str, float]
    files: float
    #: Of NATS.
    streams: int
    consumers: int


async def measure(servers: int, minutes: float = MINUTES, rate: int = RATE) -> list[Figure]:
    """Publish ``rate`` events a second for ``minutes``, in a mesh of two workers."""
    kinds = dict(zip((f"Soak{n}" for n in range(APPS)), itertools.cycle(TEXTS), strict=False))
    async with harness.mesh(2, managers=2, servers=servers) as view:
        for name, kind in kinds.items():
            await view.service.deploy(TEXTS[kind].format(name=name))
        for name in kinds:
            await view.until_running(name)
        publisher = Publisher(view.access(FEEDER), tuple(kinds), rate)
        async with api(view) as client:
            publisher.start()
            samples, apps, kills = await _for(minutes * 60, view, client, publisher)
            counts = dict(zip(kinds, publisher.stop(), strict=True))
        late_s = await _until_stored(view, kinds, counts)
        url = view.cluster.servers.url
        wrong = {n: wrong_rows(_rows(url, n), kind, counts[n]) for n, kind in kinds.items()}
    return [
        Figure(
            "output rows that are missing, too many or wrong", sum(wrong.values()), "", 0.0,
            at_least=False, note=f"{sum(counts.values()):,} events in {minutes:g} minutes; "
            f"{apps} apps made and removed, {kills} kills; the last row came after {late_s:.0f} s",
        ),
        *growth(samples),
    ]  # fmt: skip


async def _for(
    seconds: float, view: View, client: httpx.AsyncClient, publisher: Publisher
) -> tuple[list[Sample], int, int]:
    """Samples, and numbers of apps that were deployed and removed, and of kills."""
    samples: list[Sample] = []
    killed = itertools.cycle(("w2", "m2"))
    kills = 0

    async def sample(_: int) -> None:
        publisher.check()
        samples.append(await asyncio.to_thread(_sample, view))

    async def churn(number: int) -> None:
        await view.service.deploy(TEXTS["filter"].format(name=f"Churn{number}"))
        await view.until_running(f"Churn{number}")
        old = f"Churn{number - 1}"
        if old in known(view):
            await undeploy(client, old)

    async def kill(number: int) -> None:
        nonlocal kills
        if number:
            kills += 1
            name = next(killed)
            view.cluster.kill_all_of(name)
            (view.cluster.start_worker if name[0] == "w" else view.cluster.start_manager)(name)

    _, apps, _ = await asyncio.gather(
        _every(_SAMPLE_S, seconds, sample),
        _every(_CHURN_S, seconds, churn),
        _every(_KILL_S, seconds, kill),
    )
    return samples, apps, kills


async def _every(interval_s: float, seconds: float, step: Callable[[int], Any]) -> int:
    """Take a step in each interval, or as soon as the last one has ended; the number of steps."""
    begin_s = time.monotonic()
    for number in itertools.count():
        at_s = time.monotonic() - begin_s
        if at_s >= seconds:
            return number
        await step(number)
        used_s = time.monotonic() - begin_s - at_s
        await asyncio.sleep(max(0.0, min(interval_s - used_s, seconds - at_s - used_s)))
    raise AssertionError


class Publisher(threading.Thread):
    """Events for each app in turn, numbered from 0 for each, at a rate."""

    def __init__(self, access: Access, apps: Sequence[str], rate: int) -> None:
        super().__init__(daemon=True)
        self._access, self._apps, self._rate = access, apps, rate
        self._is_over = threading.Event()
        self._published = 0
        self._error: BaseException | None = None

    def check(self) -> None:
        """Raise what ended the publisher early."""
        if self._error is not None:
            raise self._error

    def stop(self) -> list[int]:
        """Numbers of events by app, once all are stored."""
        self._is_over.set()
        self.join()
        self.check()
        turns, more = divmod(self._published, len(self._apps))
        return [turns + (at < more) for at in range(len(self._apps))]

    def run(self) -> None:
        """Publish until it is over."""
        try:
            with Wire(self._access) as wire:
                self._publish(wire)
                # Earlier messages of a connection are stored when a later one is.
                for app in self._apps:
                    wire.call(f"STREAM.INFO.mesh-{app}-Input")
        except BaseException as error:
            self._error = error

    def _publish(self, wire: Wire) -> None:
        heads = [f"PUB mesh.{app}.Input ".encode() for app in self._apps]
        reply = f"{wire.inbox}.a ".encode()
        begin_s = time.monotonic()
        wire.socket.settimeout(SILENCE_S)
        stored, rest = 0, b""
        while not self._is_over.wait(_TICK_S):
            due = int((time.monotonic() - begin_s) * self._rate)
            while self._published - stored >= _WINDOW:
                count, rest = acks(wire, rest)
                stored += count * _ACKNOWLEDGED
            frames = []
            for number in range(self._published, min(due, stored + _WINDOW)):
                n, at = divmod(number, len(heads))
                event = b'{"n":%d,"k":%d}' % (n, n % _KEYS)
                wanted = reply if n % _ACKNOWLEDGED == 0 else b""
                frames.append(b"%b%b%d\r\n%b\r\n" % (heads[at], wanted, len(event), event))
            wire.send(b"".join(frames))
            self._published += len(frames)


# --- outputs


def rows_of(kind: str, count: int) -> int:
    """Number of output rows of an app of a kind for ``count`` events."""
    return {
        "filter": (count + 1) // 2, "window": count // 100, "keyed": count,
        "pattern": (count + 4) // 10,
    }[kind]  # fmt: skip


def wrong_rows(rows: Iterator[dict[str, int]], kind: str, count: int) -> int:
    """Number of rows that are wrong or too many, and of missing ones.

    Rows are ordered, those of "keyed" by key.
    """
    wrong = seen = 0
    keys: defaultdict[int, int] = defaultdict(int)
    for seen, row in enumerate(rows, 1):
        at = seen - 1
        match kind:
            case "filter":
                right = {"n": 2 * at, "m": 4 * at}
            case "window":
                right = {"s": sum(range(100 * at, 100 * at + 100)), "c": 100}
            case "keyed":
                key = row["k"]
                keys[key] = c = keys[key] + 1
                right = {"k": key, "c": c, "s": key * c + _KEYS * (c * (c - 1) // 2)}
            case _:
                right = {"a": 10 * at, "b": 10 * at + 5}
        wrong += row != right
    return wrong + abs(rows_of(kind, count) - seen)


async def _until_stored(view: View, kinds: Mapping[str, str], counts: Mapping[str, int]) -> float:
    """Seconds until all output rows are stored, or of the time limit."""
    begin_s = time.monotonic()
    for name, kind in kinds.items():
        while time.monotonic() - begin_s < _REST_S:
            stored = await view.count(f"mesh-{name}-Output", f"mesh.{name}.Output")
            if stored >= rows_of(kind, counts[name]):
                break
            await asyncio.sleep(0.2)
    return time.monotonic() - begin_s


def _rows(url: str, app: str) -> Iterator[dict[str, int]]:
    for messages in harness.stored(url, f"mesh-{app}-Output", f"mesh.{app}.Output"):
        yield from map(orjson.loads, messages.data.to_pylist())


# --- growth


def growth(samples: Sequence[Sample]) -> list[Figure]:
    """Growth of each kind of process after the first third, in ten minutes."""
    late = samples[int(len(samples) * _WARM) :]
    at_s = np.array([one.at_s for one in late])
    figures = []
    for kind in sorted(samples[-1].memory_mb):
        mb = np.array([one.memory_mb.get(kind, 0.0) for one in late])
        slope = float(np.polyfit(at_s, mb, 1)[0]) * 600 / float(mb.mean()) * 100
        note = f"{samples[0].memory_mb.get(kind, 0.0):.0f} MB at first, then {mb[0]:.0f} to "
        figures.append(
            Figure(f"growth of {kind} in ten minutes", slope, "%", _FLAT, at_least=False,
                   note=f"{note}{mb[-1]:.0f}")
        )  # fmt: skip
    first, last = late[0], late[-1]
    note = f"streams {first.streams} to {last.streams}, consumers {first.consumers} to "
    figures.append(
        Figure("open files of worker and manager", last.files, "", first.files * 1.02,
               at_least=False, note=f"{first.files:.0f} before; {note}{last.consumers}")
    )  # fmt: skip
    return figures


def _sample(view: View) -> Sample:
    found = cost(view)
    owners = {one: found.memory_mb[one] for one in ("manager", "NATS")}
    parts = {f"worker's {kind}": mb for kind, mb in found.worker_mb.items()}
    files = found.files["worker"] + found.files["manager"]
    return Sample(time.monotonic(), owners | parts, files, found.streams, found.consumers)
