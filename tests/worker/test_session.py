"""Handling of commands that arrive while a worker's session performs another one."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mesh.model.app import GroupSpec
from mesh.model.cluster import Assignment, InstanceState, Standby
from mesh.plan.build import plan
from mesh.plan.reads import reads_of, with_reads
from mesh.settings import Settings
from mesh.worker.protocol import (
    HoldState,
    ReleaseState,
    SessionConfig,
    StartInstance,
    StopInstance,
    to_line,
)
from mesh.worker.session import Session, instance_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.model.cluster import InstanceStatus
    from mesh.spark.instance_io import InstanceIO


class FakeInstance:
    """An instance that has reported its stop, and needs time to end."""

    def __init__(self, io: InstanceIO) -> None:
        self.io = io
        self.is_awaited = threading.Event()
        self.may_end = threading.Event()

    def start(self) -> None:
        pass

    def stop(self, *, settle: bool = False) -> None:
        pass

    def join(self) -> None:
        self.is_awaited.set()
        self.may_end.wait(20)


class SessionWithoutSpark(Session):
    """A session whose instances are made by the test."""

    make: Callable[[InstanceIO], FakeInstance] = FakeInstance

    def _instance(self, io: InstanceIO, near: Path | None) -> Any:
        return self.make(io)


def session(
    directory: Path,
    make: Callable[[InstanceIO], FakeInstance] = FakeInstance,
    report: Callable[[InstanceStatus], None] = lambda _: None,
) -> SessionWithoutSpark:
    settings = Settings(worker=replace(Settings().worker, retry_s=0.01, retry_max_s=0.01))
    config = SessionConfig("w1", str(directory), settings)
    client: Any = SimpleNamespace(jetstream=lambda: None)
    nothing: Any = None
    replies: Any = SimpleNamespace(send=lambda reply: report(reply.status))
    options = instance_options(config)
    made = SessionWithoutSpark(config, directory, nothing, client, replies, options, None)
    made.make = make
    return made


async def test_what_is_asked_for_again_before_it_has_ended_is_started_then(tmp_path: Path) -> None:
    made: list[FakeInstance] = []

    def make(io: InstanceIO) -> FakeInstance:
        made.append(FakeInstance(io))
        return made[-1]

    group = GroupSpec("A", "g", 1, "", (), (), stateful=False)
    start = to_line(StartInstance(Assignment("A-g-1", "A", "g", 1, "A-1", "w1", 5, 5), group))

    one = session(tmp_path, make)
    await one.handle(start)
    await started(one)
    await one.handle(to_line(StopInstance("A-g-1", 5)))
    assert await asyncio.to_thread(made[0].is_awaited.wait, 20)
    # It is requested while the first one still exists.
    await one.handle(start)
    await asyncio.sleep(0)
    assert len(made) == 1
    made[0].may_end.set()
    await started(one)
    assert len(made) == 2
    running: Any = one.instances
    assert running == {"A-g-1": made[1]}
    # One that runs is not started twice.
    await one.handle(start)
    await started(one)
    assert len(made) == 2


async def started(one: SessionWithoutSpark) -> None:
    await asyncio.gather(*(starting for _, starting in one.starting.values()))


async def test_one_that_does_not_end_holds_no_other_up(tmp_path: Path) -> None:
    made: list[FakeInstance] = []

    def make(io: InstanceIO) -> FakeInstance:
        made.append(FakeInstance(io))
        return made[-1]

    def start(name: str, epoch: int) -> bytes:
        assignment = Assignment(name, "A", "g", 1, "A-1", "w1", epoch, epoch)
        group = GroupSpec("A", "g", 1, "", (), (), stateful=False)
        return to_line(StartInstance(assignment, group))

    one = session(tmp_path, make)
    await one.handle(start("A-g-1", 5))
    await started(one)
    # The earlier epoch has to end first, and does not.
    await one.handle(start("A-g-1", 6))
    await one.handle(start("A-h-1", 6))
    await one.starting["A-h-1"][1]
    assert [i.io.assignment.instance for i in made] == ["A-g-1", "A-h-1"]
    # A stop of one that is about to start ends it when it has started.
    await one.handle(to_line(StopInstance("A-g-1", 6)))
    made[0].may_end.set()
    await one.starting["A-g-1"][1]
    assert len(made) == 3
    assert await asyncio.to_thread(made[2].is_awaited.wait, 20)
    for instance in made:
        instance.may_end.set()
    await asyncio.gather(*one.ending)
    assert list(one.instances) == ["A-h-1"]


async def test_one_that_can_not_be_started_is_tried_again_and_fails_no_other(
    tmp_path: Path,
) -> None:
    is_full = True
    asked = asyncio.Event()

    def make(io: InstanceIO) -> FakeInstance:
        if io.group.name == "g" and is_full:
            asked.set()
            raise OSError(28, "no space")
        return FakeInstance(io)

    def start(group: str, epoch: int) -> bytes:
        assignment = Assignment(f"A-{group}-1", "A", group, 1, "A-1", "w1", epoch, epoch)
        given = GroupSpec("A", group, 1, "", (), (), stateful=False)
        return to_line(StartInstance(assignment, given))

    said: list[InstanceStatus] = []
    one = session(tmp_path, make, said.append)
    async with asyncio.timeout(20):
        await one.handle(start("g", 5))
        await one.handle(start("h", 5))
        await one.starting["A-h-1"][1]
        await asked.wait()
        assert list(one.instances) == ["A-h-1"]
        # A stop ends the attempts.
        await one.handle(to_line(StopInstance("A-g-1", 5)))
        await asyncio.gather(*one.ending)
        states = [(status.instance, status.state) for status in said]
        assert set(states[:-1]) == {("A-g-1", InstanceState.RETRYING)}
        assert states[-1] == ("A-g-1", InstanceState.STOPPED)
        assert "no space" in str(said[0].error)
        # So does a later epoch, which starts once there is room.
        asked.clear()
        await one.handle(start("g", 6))
        await asked.wait()
        await one.handle(start("g", 7))
        is_full = False
        await started(one)
    assert one.instances["A-g-1"].io.assignment.epoch == 7


async def test_a_group_that_reads_what_its_author_may_not_is_not_started(tmp_path: Path) -> None:
    source = "@source(type='nats', stream='mesh-Victim-Ein') define stream S (a int);"
    spec = plan(f"@App:name('A') {source} from S select a insert into T;").spec
    said: list[InstanceStatus] = []
    has_failed = asyncio.Event()

    def report(status: InstanceStatus) -> None:
        said.append(status)
        has_failed.set()

    one = session(tmp_path, report=report)

    def start(group: GroupSpec, epoch: int) -> bytes:
        assignment = Assignment("A-g-1", "A", group.name, 1, "A-1", "w1", epoch, epoch)
        return to_line(StartInstance(assignment, group))

    async with asyncio.timeout(20):
        await one.handle(start(replace(spec.groups[0], reads=()), 5))
        await has_failed.wait()
        assert "MESH-C135" in str(said[0].error)
        await one.handle(start(with_reads(spec, reads_of(spec)).groups[0], 6))
        await started(one)


async def test_a_state_that_can_not_be_held_ends_nothing(tmp_path: Path) -> None:
    one = session(tmp_path)
    # A file where the directory would be fails as a full disk does.
    one.directory = tmp_path / "file" / "instances"
    (tmp_path / "file").write_text("")
    standby = Standby("A-g-1", "A", "g", 1, 1, "i1", "w2", "w2-1", 5)
    group = GroupSpec("A", "g", 1, "", (), (), stateful=True)
    await one.handle(to_line(HoldState(standby, group)))
    held = one.mirrors["A-g-1"]
    assert held.task is not None
    await asyncio.sleep(0)
    assert not held.task.done()
    await one.handle(to_line(ReleaseState("A-g-1")))
    assert one.mirrors == {}
