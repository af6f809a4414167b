"""Conformance kit for connectors: kills the host before and after every step of an instance.

    async def sends(stage): await stage.publish("T", {"n": 1})
    async def arrived(stage): return Path(..).read_text()
    await conform(url, Scenario(APP, "sink-T", sends, arrived, is_whole), directory)

A calm run shows the steps: reads, writes, messages to the broker, stored positions.  Then each step
is the last of a run of its own, once before it has an effect and once after it.  Whatever a killed
instance does later has no effect, as in a process that has ended.  A successor of a higher epoch
finishes the run, and the outcome must be that of the calm run.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from nats.errors import TimeoutError as NatsTimeout
from nats.js.errors import NotFoundError

from mesh.clock import SystemClock
from mesh.connect.contract import NodeAccess
from mesh.control.retries import Retries
from mesh.jetstream.channels import delete_channels, ensure_channels
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.model.cluster import Assignment, InstanceState, InstanceStatus
from mesh.model.nats_roles import NatsRole, inbox
from mesh.plan.build import plan
from mesh.receiver.environment import HostEnvironment
from mesh.receiver.host import instance_of
from mesh.receiver.sources import PullInstance
from mesh.settings import ChannelSettings, NatsSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from nats.aio.client import Client

    from mesh.model.app import AppSpec
    from mesh.model.values import EventValues
    from mesh.receiver.instance import ConnectorInstance

#: Timeout of each wait, seconds.
DEADLINE_S: Final = 30.0
#: User and password of the connectors' connection.
HOST_LOGIN: Final = ("connector", "of-connector")


class Stage:
    """One app's channels, and instances that a test starts and stops."""

    #: Timeout of each wait, seconds.
    deadline_s = DEADLINE_S

    def __init__(
        self,
        client: Client,
        spec: AppSpec,
        access: NodeAccess,
        references: Mapping[str, Mapping[str, str]] | None = None,
        host: Client | None = None,
    ) -> None:
        self.client, self.js, self.spec = client, client.jetstream(), spec
        self.reports: list[InstanceStatus] = []
        self.running: list[ConnectorInstance] = []
        self.environment = HostEnvironment(
            host or client,
            SystemClock(),
            "w1",
            access,
            lambda: references or {},
            lambda: Retries(0.05, 0.2),
            self.reports.append,
        )
        #: Environment of instances that are not killed, beside the one that is.
        self.calm = self.environment

    def start(self, group: str, epoch: int = 1, **changes: Any) -> ConnectorInstance:
        """Start the only instance of a group."""
        group_spec = self.spec.group(group)
        assert group_spec is not None, [g.name for g in self.spec.groups]
        assignment = Assignment(
            group_spec.instances[0], self.spec.name, group, 1, "inc", "w1", epoch, lease_revision=1
        )
        instance = instance_of(self.environment, group_spec, replace(assignment, **changes))
        self.running.append(instance)
        instance.start()
        return instance

    async def until(self, what: str, condition: Callable[[], Any]) -> Any:
        """The value of a condition, once it is true."""
        try:
            async with asyncio.timeout(self.deadline_s):
                while True:
                    # A broker without a processor answers late: the next look asks it again.
                    with suppress(NatsTimeout):
                        result = condition()
                        if asyncio.iscoroutine(result):
                            result = await result
                        if result:
                            return result
                    await asyncio.sleep(0.01)
        except TimeoutError:
            last = {r.instance: (r.state, r.error, r.connectors) for r in self.reports}
            raise AssertionError(f"{what}: {last}") from None

    async def until_running(self, instance: ConnectorInstance) -> InstanceStatus:
        """The first report that it and its connectors run."""

        def report() -> InstanceStatus | None:
            return next(
                (
                    r
                    for r in self.reports
                    if (r.instance, r.epoch)
                    == (instance.assignment.instance, instance.assignment.epoch)
                    and r.state is InstanceState.RUNNING
                    and all(d.state is InstanceState.RUNNING for d in r.connectors)
                ),
                None,
            )

        return await self.until("running", report)  # type: ignore[no-any-return]  # it is true

    async def publish(self, stream: str, *events: EventValues) -> None:
        """Publish events to a stream of the app."""
        for event in events:
            await self.js.publish(names.subject(self.spec.name, stream), json.dumps(event).encode())

    async def messages(self, js_stream: str, subject: str) -> list[bytes]:
        """The payloads of all messages of a subject, in order."""
        payloads: list[bytes] = []
        sequence = 1
        while True:
            try:
                message = await self.js.get_msg(js_stream, sequence, subject=subject, next=True)
            except NotFoundError:
                return payloads
            payloads.append(message.data or b"")
            sequence = (message.seq or 0) + 1

    async def events(self, stream: str) -> list[EventValues]:
        """The events of a channel."""
        name = self.spec.name
        payloads = await self.messages(names.js_stream(name, stream), names.subject(name, stream))
        return [json.loads(line) for payload in payloads for line in payload.split(b"\n")]

    async def errors(self) -> list[EventValues]:
        """The entries of the error stream."""
        name = self.spec.name
        return [
            json.loads(entry)
            for entry in await self.messages(names.error_js_stream(name), names.error_subject(name))
        ]


@asynccontextmanager
async def staged(
    url: str,
    text: str,
    access: NodeAccess | None = None,
    references: Mapping[str, Mapping[str, str]] | None = None,
) -> AsyncIterator[Stage]:
    """A stage for the app ``text`` on the server at ``url``; its channels are made.

    Its connectors have a connection of their own, with ``HOST_LOGIN``, which a server without users
    doesn't look at.
    """
    spec = plan(text).spec
    user, password = HOST_LOGIN
    async with AsyncExitStack() as ends:

        async def connected(settings: NatsSettings, name: str) -> Client:
            client = await connect(settings, name)
            ends.push_async_callback(close, client)
            return client

        # Its inboxes are those of managers, to which connectors may answer.
        client = await connected(NatsSettings(url, inbox_prefix=inbox(NatsRole.MANAGER)), "test")
        login = NatsSettings(url, user, password, inbox_prefix=inbox(NatsRole.CONNECTOR))
        host = await connected(login, "connectors")
        opened = access or NodeAccess(listen=("127.0.0.1:0-65535",))
        stage = Stage(client, spec, opened, references, host)
        try:
            await ensure_channels(client, spec, ChannelSettings())
            yield stage
        finally:
            for instance in stage.running:
                await instance.stop()


class KilledError(BaseException):
    """The host has ended at this point."""


@dataclass
class Steps:
    """Steps of one instance; the one that is killed ends it."""

    #: Index of the moment at which it is killed: two for each step; None for never.
    kill_at: int | None = None
    names: list[str] = field(default_factory=list)
    killed: asyncio.Event = field(default_factory=asyncio.Event)

    async def around(self, name: str, call: Callable[[], Awaitable[object]]) -> Any:
        """Perform a step."""
        self._moment(f"before {name}")
        result = await call()
        self._moment(f"after {name}")
        return result

    def _moment(self, name: str) -> None:
        if self.killed.is_set():
            raise KilledError
        self.names.append(name)
        if len(self.names) - 1 == self.kill_at:
            self.killed.set()
            raise KilledError


class _Stepping:
    """An object some methods of which are steps."""

    def __init__(self, whole: Any, steps: Steps, methods: Mapping[str, str]) -> None:
        self._whole, self._steps, self._methods = whole, steps, methods

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._whole, name)
        if name == "jetstream":
            js: Any = self._whole.jetstream()
            return lambda: _Stepping(js, self._steps, {"publish": "publish with an ack"})
        if name not in self._methods:
            return attribute

        async def step(*arguments: Any, **more: Any) -> Any:
            async def call() -> Any:
                return await attribute(*arguments, **more)

            if arguments and str(arguments[0]).startswith("$JS.API"):
                return await call()
            return await self._steps.around(self._methods[name], call)

        return step


_CLIENT: Final = {"publish": "publish", "request": "store a position"}
_CONNECTOR: Final = {"open": "open", "read": "read", "write": "write", "committed": "committed"}


@dataclass(frozen=True, slots=True)
class ConnectorScenario:
    """One use of a connector."""

    #: An app; ``{app}`` is its name, ``{directory}`` an empty directory of each run.
    text: str
    #: The group of the source or sink, such as ``sink-T``.
    group: str
    #: Sends the input; begins with the instance, and may have to try again while none runs.
    drive: Callable[[Stage], Coroutine[object, object, None]]
    #: The outcome so far.
    outcome: Callable[[Stage], Awaitable[object]]
    #: Whether an outcome is complete.
    is_whole: Callable[[Any], bool]
    access: Callable[[Path], NodeAccess] = lambda directory: NodeAccess(
        (str(directory),), ("127.0.0.1:0-65535",)
    )


async def conform(url: str, scenario: ConnectorScenario, directory: Path) -> list[str]:
    """Play a scenario calmly, and once for each moment at which its host may end.

    Args:
        url: of a NATS server.
        scenario: the use.
        directory: for files of the runs.

    Returns:
        The moments at which the host was killed.

    Raises:
        AssertionError: the outcome after a kill differs from that of the calm run.
    """
    calm = Steps()
    expected = await _run(url, scenario, directory, calm, 0)
    moments = _moments(calm.names)
    for run, at in enumerate(moments, 1):
        outcome = await _run(url, scenario, directory, Steps(at), run)
        assert outcome == expected, f"killed {calm.names[at]}: {outcome!r} instead of {expected!r}"
    return [calm.names[at] for at in moments]


def _moments(names: Sequence[str]) -> list[int]:
    """Places of the moments that differ: a source that waits for more reads again and again.

    How often it does depends on the machine, the length of the result hardly.
    """
    reads = ["before read", "after read"]
    alike = (2 * reads, 2 * reads[::-1])
    return [
        at
        for at, name in enumerate(names)
        if name not in reads or at < 4 or list(names[at - 4 : at]) not in alike
    ]


async def _run(
    url: str, scenario: ConnectorScenario, directory: Path, steps: Steps, number: int
) -> Any:
    run_dir = directory / f"run{number}"
    run_dir.mkdir()
    text = scenario.text.replace("{app}", f"Run{number}").replace("{directory}", str(run_dir))
    async with staged(url, text, scenario.access(run_dir)) as stage:
        whole = stage.environment
        stage.environment = replace(
            whole,
            client=cast("Client", _Stepping(whole.client, steps, _CLIENT)),
            make=lambda spec: _Stepping(whole.make(spec), steps, _CONNECTOR),
        )
        first = stage.start(scenario.group)
        again: tuple[ConnectorInstance, Steps] | None = None
        driving = asyncio.create_task(scenario.drive(stage))
        ending = asyncio.create_task(_whole(stage, scenario))
        dying = asyncio.create_task(steps.killed.wait())
        try:
            await asyncio.wait([ending, dying], return_when=asyncio.FIRST_COMPLETED)
            if not steps.killed.is_set():
                # The moments of its end are moments as well.
                await first.stop()
            if steps.killed.is_set():
                await first.abandon()
                repeated = Steps()
                stage.environment = replace(
                    whole, make=lambda spec: _Stepping(whole.make(spec), repeated, _CONNECTOR)
                )
                second = stage.start(scenario.group, epoch=2)
                again = second, repeated
                # It may have to undo a part of the outcome first.
                await stage.until_running(second)
            await driving
            await ending
            if again is not None:
                await stage.until("the end of the input", partial(_has_repeated, stage, *again))
        finally:
            for task in (driving, ending, dying):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task
            for instance in stage.running:
                await instance.stop()
        outcome = await scenario.outcome(stage)
        await delete_channels(stage.js, stage.spec)
        return outcome


async def _has_repeated(stage: Stage, successor: ConnectorInstance, steps: Steps) -> bool:
    """Whether a successor has done all that it may do twice: an outcome is whole before that."""
    if isinstance(successor, PullInstance):
        # Its second read follows the effects of the first.
        return steps.names.count("before read") > 1
    done = successor.status().position
    for group_input in successor.group.inputs:
        channel = group_input.channel
        try:
            last = await stage.js.get_last_msg(channel.js_stream(), channel.subject())
        except NotFoundError:
            continue
        if done.get(channel.js_stream(), 0) < (last.seq or 0):
            return False
    return True


async def _whole(stage: Stage, scenario: ConnectorScenario) -> Any:
    async def whole_outcome() -> Any:
        outcome = await scenario.outcome(stage)
        return [outcome] if scenario.is_whole(outcome) else None

    return await stage.until("the outcome", whole_outcome)
