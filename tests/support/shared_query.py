"""A shared query without Spark: its planner and tasks, driven by hand, with a real server."""

from __future__ import annotations

import base64
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from mesh.clock import SystemClock
from mesh.jetstream.channels import js_streams
from mesh.model import names
from mesh.model.cluster import Assignment, InstanceState, InstanceStatus
from mesh.plan.build import plan
from mesh.spark.instance_context import InstanceContext, InstanceOptions
from mesh.spark.instance_io import InstanceIO
from mesh.spark.shared_query import members
from mesh.spark.shared_query.instance import SharedInstance
from mesh.spark.shared_query.planner import BatchPlanner
from mesh.spark.shared_query.task import outcomes
from mesh.spark.shared_query.work import ADMITTED, FAILED, REMOVED
from pyspark_nats.decode.limits import USUAL, MessageLimits
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from mesh.clock import Clock
    from mesh.jetstream.server import NatsServer
    from mesh.model.app import AppSpec
    from mesh.spark.shared_query.members import Member

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

    def __init__(self) -> None:
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

    def save(self, part: str, manifest: bytes, pieces: Mapping[str, Path]) -> None:
        self.kept[part] = manifest, {name: path.read_bytes() for name, path in pieces.items()}

    def forget(self, part: str) -> None:
        return

    def behind(self, consumed: Mapping[str, int]) -> int:
        return 0

    def ends(self, streams: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(streams, self.last)


class Hand:
    """A carrier without Spark: batches run when ``step`` is called."""

    def __init__(self, directory: Path, nats: NatsServer) -> None:
        self.nats = {"servers": nats.url}
        self.directory = directory
        self.members = directory / "members"
        self.members.mkdir()
        self.pool = self.errands = ThreadPoolExecutor(1)
        self.known = connection_options(self.nats)
        self.plan = BatchPlanner(self.members, self.known, "_INBOX.nudge")
        self.broker = Connection(self.known)
        self.listeners: dict[str, Any] = {}
        self.generations = itertools.count(1)
        #: Only queries of their own would use it.
        self.session = None
        self.batch = 0

    def register(self, listener: Any) -> None:
        pass

    def unregister(self, listener: Any) -> None:
        pass

    def admit(self, listener: Any, member: Member) -> None:
        self.listeners[member.file_name] = listener, member
        members.admit(self.members, member)

    def release(self, member: Member) -> None:
        if (self.members / member.file_name).exists():
            members.request_removal(self.members, member)

    def step(self, wait_s: float = 5.0) -> list[tuple[str, str]]:
        """Run the next batch; kind and instance of each outcome."""
        self.pool.submit(int).result()
        self.batch += 1
        told = []
        for made in outcomes(self.members, self.batch, self.plan.next(wait_s)):
            row = SimpleNamespace(**made.to_pylist()[0])
            told.append((row.kind, row.instance.split("-")[1]))
            name = members.file_name(row.instance, row.generation)
            listener, member = self.listeners[name]
            if row.kind in (FAILED, REMOVED):
                members.remove(self.members, member)
            listener.on_outcome(row)
        self.pool.submit(int).result()
        return told

    def until(self, kind: str, instance: str) -> None:
        """Run batches until one reports this."""
        for _ in range(20):
            if (kind, instance) in self.step():
                return
        raise AssertionError(f"{instance} did not become {kind}")

    def publish(self, app: str, *numbers: int) -> None:
        """Store events."""
        calls = [(f"mesh.{app}.Numbers", json.dumps({"n": n}).encode()) for n in numbers]
        self.broker.retry_while_unavailable("publishing", lambda: self.broker.requests(calls))

    def make(self, spec: AppSpec) -> None:
        """Make the channels of an app."""
        for name, subject in js_streams(spec):
            config = {
                "name": name,
                "subjects": [subject, f"{names.marker_subject(name)}.>"],
                "allow_direct": True,
                "allow_atomic": True,
            }
            call = (f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())
            self.ask(call)

    def ask(self, call: tuple[str, bytes]) -> bytes:
        return self.broker.retry_while_unavailable("asking", lambda: self.broker.requests([call]))[
            0
        ].data

    def rows(self, app: str, stream: str) -> list[list[Any]]:
        """All events of a stream."""
        found: list[list[Any]] = []
        at = 1
        while True:
            call = (
                f"$JS.API.STREAM.MSG.GET.mesh-{app}-{stream}",
                json.dumps({"seq": at, "next_by_subj": f"mesh.{app}.{stream}"}).encode(),
            )
            answer = json.loads(self.ask(call))
            if "message" not in answer:
                return found
            at = answer["message"]["seq"] + 1
            found.append(list(json.loads(base64.b64decode(answer["message"]["data"])).values()))


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
