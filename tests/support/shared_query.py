"""A shared query without Spark: one slot, driven by hand, with a real server."""

from __future__ import annotations

import base64
import itertools
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mesh.clock import SystemClock
from mesh.jetstream.channels import js_streams
from mesh.model import error_entry, names
from mesh.model.cluster import Assignment, InstanceState, InstanceStatus
from mesh.plan.build import plan
from mesh.spark.instance_context import InstanceContext, InstanceOptions
from mesh.spark.instance_io import InstanceIO
from mesh.spark.shared_query import members
from mesh.spark.shared_query.at_work import AtWork
from mesh.spark.shared_query.instance import SharedInstance
from mesh.spark.shared_query.members import ADMITTED
from mesh.spark.shared_query.serving import Serving
from pyspark_nats.decode.result import USUAL, MessageLimits
from pyspark_nats.protocol import connection, frames
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.protocol.subscriptions import wait_any
from tests.support.broker import create_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from mesh.clock import Clock
    from mesh.jetstream.server import NatsServer
    from mesh.model.app import AppSpec
    from mesh.spark.shared_query.members import Member, Outcome
    from mesh.spark.task_states import TaskStore

#: Time in which messages reach those that follow their stream, if these are there, seconds.
_ARRIVAL_S: Final = 5.0

APP = """@App:name('{name}')
define stream Numbers (n int);
@dist(execGroup='sums')
from Numbers#window.length(3) select sum(n) as total insert into Sums;
@dist(execGroup='large')
from Numbers[n > 1] select n * 10 as tenfold insert into Large;
@dist(execGroup='late')
from Numbers#window.time(500 millisec) select n insert expired events into Late;
"""


class Snapshots:
    """A store in memory."""

    def __init__(self, task_store: TaskStore | None = None) -> None:
        self._task_store = task_store
        self.kept: dict[str, tuple[bytes, dict[str, bytes]]] = {}
        #: The last sequence of every stream.
        self.last = 0

    def restore(self, part: str, piece_path: Callable[[str], Path]) -> bytes | None:
        if part not in self.kept:
            return None
        manifest, pieces = self.kept[part]
        for name, data in pieces.items():
            piece_path(name).write_bytes(data)
        return manifest

    def save(self, part: str, manifest: bytes, pieces: Mapping[str, Path | str]) -> None:
        self.kept[part] = manifest, {n: self._content(one) for n, one in pieces.items()}

    def _content(self, piece: Path | str) -> bytes:
        if not isinstance(piece, str):
            return piece.read_bytes()
        assert self._task_store is not None, "no task has stored it"
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "piece")
            self._task_store.fetch({piece: path})
            return path.read_bytes()

    def stored(self, part: str) -> Mapping[str, str]:
        return {}

    def discard(self, part: str, names: Collection[str]) -> None:
        return

    def forget(self, part: str) -> None:
        return

    def bounds(self, streams: Collection[str]) -> dict[str, tuple[int, int]]:
        return dict.fromkeys(streams, (1, self.last))

    def ends(self, streams: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(streams, self.last)


class Hand:
    """A shared query without Spark: rounds run when ``step`` is called."""

    def __init__(self, directory: Path, nats: NatsServer) -> None:
        self.nats = {"servers": nats.url}
        self.directory = directory
        self.pool = self.errands = ThreadPoolExecutor(1)
        self.known = connection_options(self.nats)
        self.at_work = AtWork(directory / "at-work")
        self.told: list[Outcome] = []
        self.serving = Serving(self.known, self.told.extend, self.at_work, report_s=0.0)
        self.commands: list[Callable[[], None]] = []
        #: Called before each run of a round, then the commands are performed.
        self.before_run: Callable[[], None] | None = None
        #: Most messages of a part's first run; None for the usual.
        self.rows_first: int | None = None
        self.broker = Connection(self.known)
        self.listeners: dict[str, Any] = {}
        self.generations = itertools.count(1)
        #: Only queries of their own would use it.
        self.session = None

    def register(self, listener: Any) -> None:
        pass

    def unregister(self, listener: Any) -> None:
        pass

    def admit(self, listener: Any, member: Member) -> None:
        self.commands.append(lambda: self._admit(listener, member))

    def release(self, member: Member) -> None:
        self.commands.append(lambda: self.serving.remove(member.file_name))

    def end(self) -> None:
        """Close everything."""
        self.serving.close()
        self.broker.close()
        self.pool.shutdown()
        # The one that tasks of this thread share.
        connection.close_shared()

    def until_idle(self) -> None:
        """Wait for the jobs of the instances, and for those that these jobs submit."""
        for _ in range(5):
            self.pool.submit(int).result()

    def report_at(self, at_s: float) -> None:
        """Have the next report of each part be due at a time, monotonic, seconds."""
        for parts in self.serving.served.values():
            for one in parts.values():
                one.due_s = at_s
                if one in self.serving.reports:
                    self.serving.reports.set(one, at_s)

    def step(self, wait_s: float = 5.0) -> list[tuple[str, str]]:
        """Run the next round; kind and instance of each outcome."""
        self.until_idle()
        self._obey()
        self.serving.round(0.0 if self.told else wait_s, between=self._before_run)
        told, self.told[:] = list(self.told), []
        for outcome in told:
            name = members.file_name(outcome.instance, outcome.generation)
            self.listeners[name].on_outcome(outcome)
        self.until_idle()
        return [(outcome.kind, outcome.instance.split("-")[1]) for outcome in told]

    def _before_run(self) -> None:
        if self.before_run is not None:
            self.before_run()
            self._obey()

    def _obey(self) -> None:
        commands, self.commands = self.commands, []
        for command in commands:
            command()

    def _admit(self, listener: Any, member: Member) -> None:
        # A query that failed has lost its slots.
        for old in [m for m in self.listeners if m.startswith(f"{member.name}.")]:
            for part in self.serving.served.pop(old, {}).values():
                self.serving.planner.remove(part.member.file_name)
        self.listeners[member.file_name] = listener
        self.serving.admit(member, [part.key for part in member.parts])
        if self.rows_first is not None:
            for place in self.serving.planner.places.get(member.file_name, ()):
                place.rows_max = self.rows_first

    def until(self, kind: str, instance: str) -> None:
        """Run batches until one reports this."""
        for _ in range(20):
            if (kind, instance) in self.step():
                return
        raise AssertionError(f"{instance} did not become {kind}")

    def until_rows(self, app: str, stream: str, count: int) -> None:
        """Run batches until a stream has so many events: they may come to a part in pieces."""
        for _ in range(60):
            if len(self.rows(app, stream)) >= count:
                return
            self.step(1.0)
        raise AssertionError(f"{stream} has {self.rows(app, stream)}")

    def publish(self, app: str, *numbers: int) -> None:
        """Store events; the next round has all of them."""
        calls = [(f"mesh.{app}.Numbers", json.dumps({"n": n}).encode()) for n in numbers]
        acks = self.broker.retry_while_unavailable(
            "publishing", lambda: self.broker.requests(calls)
        )
        self.receive(f"mesh-{app}-Numbers", int(acks[-1].json()["seq"]))

    def receive(self, stream: str, last: int) -> None:
        """Return when all that follow a stream have received its message ``last``."""
        tails = self.serving.planner.tails
        deadline_s = time.monotonic() + _ARRIVAL_S

        def is_late() -> bool:
            return any(
                not any(last in one.sequence for one in tail.waiting)
                for tail in tails.by_key.values()
                if tail.stream == stream
            )

        tails.receive()
        while is_late() and (rest_s := deadline_s - time.monotonic()) > 0:
            wait_any([tails.connection], (), rest_s)
            tails.receive()

    def store(self, payload: bytes, headers: bytes = b"", app: str = "A") -> None:
        """Store one message of ``Numbers``, with header lines as they are."""
        block = b"NATS/1.0\r\n" + headers + b"\r\n" if headers else b""

        def send() -> int:
            (reply,) = self.broker.reply_subjects(1)
            message = frames.publish(f"mesh.{app}.Numbers", payload, reply=reply, header=block)
            self.broker.send(message)
            return int(self.broker.replies([reply])[0].json()["seq"])

        last = self.broker.retry_while_unavailable("publishing", send)
        self.receive(f"mesh-{app}-Numbers", last)

    def make(self, spec: AppSpec) -> None:
        """Make the channels of an app."""
        for name, subject in js_streams(spec):
            create_stream(
                self.broker, name=name, subjects=[subject, f"{names.marker_subject(name)}.>"],
                allow_direct=True, allow_atomic=True, allow_batched=True,
            )  # fmt: skip

    def make_state_buckets(self) -> None:
        """Make the buckets of manifests and pieces."""
        for stream, subject in (
            (f"KV_{names.SNAPSHOTS_BUCKET}", f"$KV.{names.SNAPSHOTS_BUCKET}.>"),
            (f"OBJ_{names.STATE_BUCKET}", f"$O.{names.STATE_BUCKET}.>"),
        ):
            create_stream(self.broker, name=stream, subjects=[subject], allow_direct=True)

    def ask(self, call: tuple[str, bytes]) -> bytes:
        return self.broker.retry_while_unavailable("asking", lambda: self.broker.requests([call]))[
            0
        ].data

    def rows(self, app: str, stream: str) -> list[list[Any]]:
        """All events of a stream."""
        stored = self._stored(f"mesh-{app}-{stream}", f"mesh.{app}.{stream}")
        return [list(json.loads(data).values()) for data in stored]

    def errors(self, app: str = "A") -> list[dict[str, Any]]:
        """The entries of an app's error stream."""
        stored = self._stored(names.error_js_stream(app), names.error_subject(app))
        return [error_entry.from_json(data) for data in stored]

    def _stored(self, js_stream: str, subject: str) -> Iterator[bytes]:
        """Payloads of all messages of a subject."""
        at = 1
        while True:
            query = json.dumps({"seq": at, "next_by_subj": subject}).encode()
            answer = json.loads(self.ask((f"$JS.API.STREAM.MSG.GET.{js_stream}", query)))
            if "message" not in answer:
                return
            at = answer["message"]["seq"] + 1
            yield base64.b64decode(answer["message"]["data"])


class Instances:
    """The instances of an app, in the hand."""

    def __init__(
        self,
        hand: Hand,
        name: str,
        stores: dict[str, Snapshots] | None = None,
        clock: Clock | None = None,
        epoch: int = 1,
        until: Mapping[str, int] | None = None,
        retry_s: float = 0.0,
        message: MessageLimits = USUAL,
        app: str = APP,
    ) -> None:
        self.spec = plan(app.format(name=name)).spec
        self.stores = stores or {group.name: Snapshots() for group in self.spec.groups}
        self.states: dict[str, InstanceState] = {}
        self.statuses: dict[str, InstanceStatus] = {}
        options = InstanceOptions("w", hand.nats, 1000, 0.0, retry_s, 30.0, 30.0, message)
        self.by_group = {}
        for group in self.spec.groups:
            assignment = Assignment(
                group.instances[0],
                name,
                group.name,
                1,
                "w",
                "i",
                epoch=epoch,
                lease_revision=0,
                until=until,
            )
            directory = hand.directory / name / group.name / str(len(hand.listeners))

            def report(status: InstanceStatus, group: str = group.name) -> None:
                self.statuses[group] = status

            self.by_group[group.name] = SharedInstance(
                hand,  # type: ignore[arg-type]
                InstanceContext(
                    InstanceIO(group, assignment),
                    options,
                    directory,
                    self.stores[group.name],
                    report,
                    clock or SystemClock(),
                ),
            )

    def told(self, group: str) -> InstanceState:
        """The state that was reported last."""
        return self.statuses[group].state


def begun(hand: Hand, name: str, clock: Clock | None = None, *, retry_s: float = 0.0) -> Instances:
    """An app with all its instances admitted."""
    return admitted(hand, Instances(hand, name, clock=clock, retry_s=retry_s))


def admitted(hand: Hand, app: Instances) -> Instances:
    """The app, with its channels made and all its instances admitted."""
    hand.make(app.spec)
    for one in app.by_group.values():
        one.start()
    told = hand.step()
    assert {kind for kind, _ in told} == {ADMITTED}
    assert {status.state for status in app.statuses.values()} == {InstanceState.RUNNING}
    return app


class HandClock(SystemClock):
    """A clock that is moved by hand."""

    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


class OwnQuery:
    """An instance with a query of its own, without Spark."""

    made: ClassVar[list[OwnQuery]] = []

    def __init__(self, _session: Any, given: InstanceContext) -> None:
        self.io = given.io
        self._report = given.report
        self.stops = 0

    def start(self) -> None:
        self.made.append(self)

    def stop(self, *, settle: bool = False) -> None:
        self.stops += 1
        self.say(InstanceState.STOPPED)

    def say(self, state: InstanceState, messages_in: int = 0) -> None:
        told = self.io.assignment
        self._report(InstanceStatus(told.instance, "A", "w", 1, state, 0, messages_in=messages_in))
