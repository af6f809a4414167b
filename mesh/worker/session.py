"""The instances of a worker, in the Spark process that its agent has started.

It reads commands from standard input and writes reports to standard output
(``mesh.worker.protocol``).  It ends when its standard input does.  The main thread runs the event
loop of NATS and the commands; each instance has a thread of its own, in which it may wait for
Spark.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.clock import SystemClock
from mesh.jetstream.blob_store import open_blob_store
from mesh.jetstream.connection import close, connect, connector_options, while_open
from mesh.jetstream.mirror import Mirror
from mesh.jetstream.snapshots import JetStreamSnapshots, ensure_buckets
from mesh.jetstream.task_store import JetStreamTaskStore
from mesh.model.access import check_inputs
from mesh.model.app import GroupKind, GroupMode
from mesh.model.cluster import Assignment, InstanceState, InstanceStatus
from mesh.processes.signals import end
from mesh.spark import cluster
from mesh.spark import session as spark_session
from mesh.spark.dedicated_query.instance import DedicatedInstance
from mesh.spark.instance_context import InstanceContext, InstanceOptions
from mesh.spark.instance_io import InstanceIO
from mesh.spark.shared_query.instance import SharedInstance
from mesh.telemetry.logs import fields
from mesh.worker import session_start, state_directory
from mesh.worker.protocol import (
    Figures,
    HoldState,
    Ready,
    ReleaseState,
    Replies,
    Report,
    SessionConfig,
    StandbyReport,
    StartInstance,
    StopInstance,
    from_line,
)
from mesh.worker.ticker import Ticker
from pyspark_nats.decode.result import MessageLimits
from pyspark_nats.protocol.connection_options import connection_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Future

    from nats.aio.client import Client
    from pyspark.sql import SparkSession

    from mesh.clock import Clock
    from mesh.control.retries import Retries
    from mesh.model.app import GroupSpec
    from mesh.model.cluster import Standby
    from mesh.spark.shared_query.query import SharedQuery

log = logging.getLogger(__name__)

#: Definitions of functions in a group's text, also in a comment: those only cost a slot.
_HAS_FUNCTIONS: Final = re.compile(r"\bdefine\s+function\b", re.IGNORECASE)

#: Largest number of the event loop's threads, created on demand: one for each instance that ends,
#: and more.
_THREADS: Final = 256
#: Interval of figures of the JVM, seconds.
_FIGURES_S: Final = 5.0


@dataclass(eq=False, repr=False)
class Session:
    """The instances of one worker, in one Spark session."""

    _config: SessionConfig
    _scratch: Path
    _spark: SparkSession
    _client: Client
    _replies: Replies
    _options: InstanceOptions
    #: None if each instance has a query of its own.
    _shared_query: SharedQuery | None
    _spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]] = asyncio.create_task
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    #: Those that run, by their names.
    instances: dict[str, DedicatedInstance | SharedInstance | Ticker] = field(default_factory=dict)
    #: For instances with functions of users; started with the first of them.
    _script_query: SharedQuery | None = None
    #: Tasks that stop an instance, with its name.
    ending: dict[asyncio.Task[None], str] = field(default_factory=dict)
    #: The last task that starts an instance, by its name, with the epoch.
    starting: dict[str, tuple[int, asyncio.Task[None]]] = field(default_factory=dict)
    #: Standby copies by instance.
    mirrors: dict[str, Mirror] = field(default_factory=dict)
    _holds: int = 0
    #: Copies for the instances that run here now; their pieces are moved out as they are used.
    _near: dict[str, Path | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory = self._scratch / state_directory.INSTANCES
        self._js = self._client.jetstream()
        worker, options = self._config.worker, self._options
        self._starts = _FailedStarts(worker, options.retries, self._report, SystemClock())
        where = self._config.settings.state.store
        self.pieces = open_blob_store(self._js, where, options.nats)

    async def handle(self, line: bytes) -> None:
        """Carry out one command."""
        match from_line(line):
            case StartInstance(assignment, group):
                # An earlier run may need time to end, and other commands need not wait for it.
                name = assignment.instance
                earlier = [t for t, ends in self.ending.items() if ends == name]
                if name in self.starting:
                    self._starts.give_up(name)
                    earlier.append(self.starting[name][1])
                # The instance owns the copy; a later release of the standby has no effect.
                mirror = self.mirrors.pop(name, None)
                starting = self._spawn(self._begin(assignment, group, earlier, mirror))
                self.starting[name] = assignment.epoch, starting
            case HoldState(standby, group):
                await self._release(standby.instance)
                try:
                    self._hold(standby, group)
                # A standby saves time, and nothing else needs it.
                except Exception:
                    log.exception("state not held", extra=fields(instance=standby.instance))
            case ReleaseState(instance):
                await self._release(instance)
            case StopInstance(instance, epoch, settle):
                # Draining needs time, and other commands need not wait for it.
                task = self._spawn(self._end(instance, epoch, settle=settle))
                self.ending[task] = instance
                task.add_done_callback(self.ending.pop)
            case other:
                log.error("session was sent a reply", extra=fields(reply=other))

    async def stop_all(self) -> None:
        """Stop every instance and wait for it."""
        for _, starting in self.starting.values():
            starting.cancel()
        for instance in self.instances.values():
            instance.stop(settle=True)
        for instance in list(self.instances.values()):
            await asyncio.to_thread(instance.join)
        self.instances.clear()
        for name in list(self.mirrors):
            await self._release(name)
        for query in (self._script_query, self._shared_query):
            if query is not None:
                await asyncio.to_thread(query.stop)

    async def _begin(
        self,
        assignment: Assignment,
        group: GroupSpec,
        earlier: list[asyncio.Task[None]],
        mirror: Mirror | None,
    ) -> None:
        """Start an instance when its earlier runs have ended."""
        name = assignment.instance
        try:
            await self._stop(name, assignment.epoch - 1)
            # An instance that reported its stop may be started again before it has ended.
            if earlier:
                await asyncio.wait(earlier)
            if name not in self.instances:
                io = InstanceIO(group, assignment)
                await self._starts.repeat(assignment, partial(self._start, io, mirror))
            elif mirror is not None:
                await mirror.drop()
        finally:
            if self.starting.get(name, (0, None))[0] == assignment.epoch:
                del self.starting[name]

    async def _end(self, name: str, epoch: int, *, settle: bool) -> None:
        """Stop an instance, also one that is only about to start."""
        starts, starting = self.starting.get(name, (epoch + 1, None))
        if starting is not None and starts <= epoch:
            self._starts.give_up(name)
            await asyncio.wait([starting])
        await self._stop(name, epoch, settle=settle)

    async def _start(self, io: InstanceIO, mirror: Mirror | None) -> None:
        assignment = io.assignment
        check_inputs(io.group)
        if mirror is not None:
            await mirror.finish()
        near = mirror.directory if mirror is not None else None
        is_trigger = io.group.kind is GroupKind.TRIGGER
        instance = self._ticker(io) if is_trigger else self._instance(io, near)
        instance.start()
        self._near[assignment.instance] = near
        self.instances[assignment.instance] = instance

    def _report(self, status: InstanceStatus) -> None:
        self._replies.send(Report(status))

    def _ticker(self, io: InstanceIO) -> Ticker:
        return Ticker(
            self._client,
            io,
            self._report,
            SystemClock(),
            worker=self._options.worker,
            retries=self._options.retries(),
        )

    def _hold(self, standby: Standby, group: GroupSpec) -> None:
        as_if = Assignment(
            standby.instance, standby.app, standby.group, standby.index, standby.app_incarnation,
            standby.worker, 0, standby.lease_revision,
        )  # fmt: skip
        io = InstanceIO(group, as_if)
        self._holds += 1
        mirror = Mirror(
            self._js,
            self.pieces,
            standby,
            [io.part(partition) for partition in io.partitions],
            self.directory.with_name("standby") / f"{standby.instance}-{self._holds}",
            lambda status: self._replies.send(StandbyReport(status)),
            SystemClock(),
            period_s=self._config.settings.worker.snapshot_interval_s / 4,
        )
        self.mirrors[standby.instance] = mirror
        mirror.start()

    async def _release(self, instance: str) -> None:
        mirror = self.mirrors.pop(instance, None)
        if mirror is not None:
            await mirror.drop()

    def _instance(self, io: InstanceIO, near: Path | None) -> DedicatedInstance | SharedInstance:
        assignment = io.assignment
        directory = self.directory / assignment.instance
        store = JetStreamSnapshots(
            self._js,
            self._loop,
            self.pieces,
            incarnation=assignment.app_incarnation,
            group=assignment.group,
            epoch=assignment.epoch,
            near=near,
        )
        context = InstanceContext(io, self._options, directory, store, self._report, SystemClock())
        query = self._query_of(io.group)
        if query is not None:
            return SharedInstance(query, context)
        return DedicatedInstance(self._spark, context)

    def _query_of(self, group: GroupSpec) -> SharedQuery | None:
        """The query that runs a group's instances together with others; None for one of its own."""
        if self._shared_query is None or group.mode is not GroupMode.REAL_TIME:
            return None
        if not _HAS_FUNCTIONS.search(group.text):
            return self._shared_query
        if self._script_query is None:
            self._script_query = session_start.start_script_query(
                self._spark, self._config, self._options, self._scratch
            )
        return self._script_query

    async def _stop(self, name: str, epoch: int, *, settle: bool = False) -> None:
        running = self.instances.get(name)
        if running is None or running.io.assignment.epoch > epoch:
            return
        running.stop(settle=settle)
        await asyncio.to_thread(running.join)
        if self.instances.get(name) is not running:
            return
        del self.instances[name]
        if near := self._near.pop(name, None):
            await asyncio.to_thread(shutil.rmtree, near, ignore_errors=True)


@dataclass(eq=False, repr=False)
class _FailedStarts:
    """Repeats the starts of one session that fail, after a rest, and reports each failure.

    Its other instances continue meanwhile.
    """

    _worker: str
    _retries: Callable[[], Retries]
    _report: Callable[[InstanceStatus], None]
    _clock: Clock
    #: By name of an instance that is being started: set to try no more.
    _stops: dict[str, asyncio.Event] = field(default_factory=dict)

    def give_up(self, name: str) -> None:
        """Start an instance no more if its start has failed."""
        if name in self._stops:
            self._stops[name].set()

    async def repeat(self, assignment: Assignment, start: Callable[[], Awaitable[None]]) -> None:
        """Start an instance, until it succeeds or is given up; ``STOPPED`` is reported then."""
        name, retries = assignment.instance, self._retries()
        stop = self._stops[name] = asyncio.Event()
        try:
            while not stop.is_set():
                try:
                    return await start()
                except Exception as error:
                    log.exception("instance not started", extra=fields(instance=name))
                    retries = retries.failed(self._clock.monotonic_s())
                    reason = f"{error}" or type(error).__name__
                    self._say(assignment, InstanceState.RETRYING, retries, reason)
                with suppress(TimeoutError):
                    async with asyncio.timeout(retries.rest_s):
                        await stop.wait()
            self._say(assignment, InstanceState.STOPPED, retries)
        finally:
            del self._stops[name]

    def _say(
        self,
        assignment: Assignment,
        state: InstanceState,
        retries: Retries,
        error: str | None = None,
    ) -> None:
        at_ms = self._clock.wall_ms()
        is_resting = state is InstanceState.RETRYING
        self._report(
            InstanceStatus(
                assignment.instance,
                assignment.app,
                self._worker,
                assignment.epoch,
                state,
                at_ms,
                error,
                restarts=retries.failures,
                retry_at_ms=at_ms + round(retries.rest_s * 1000) if is_resting else None,
            )
        )


def instance_options(config: SessionConfig) -> InstanceOptions:
    """The options that the worker's instances share."""
    settings = config.settings
    nats = connector_options(settings.nats)
    task_store = None
    if not cluster.is_local(settings.spark.master):
        task_store = JetStreamTaskStore(connection_options(nats), settings.state.store)
    return InstanceOptions(
        worker=config.worker,
        nats=nats,
        task_store=task_store,
        batch_rows_max=settings.spark.trigger_rows_max,
        snapshot_interval_s=settings.worker.snapshot_interval_s,
        retry_s=settings.worker.retry_s,
        retry_max_s=settings.worker.retry_max_s,
        settle_s=settings.worker.settle_s,
        message=MessageLimits(
            settings.spark.message_events_max,
            settings.spark.message_bytes_max,
            int(settings.spark.event_time_ahead_max_s * 1000),
        ),
    )


async def _report_figures(spark: SparkSession, replies: Replies) -> None:
    """Report figures of the JVM and of Spark, without end."""
    while True:
        try:
            replies.send(Figures(await asyncio.to_thread(spark_session.jvm_figures, spark)))
        # Metrics are missing then, and nothing else.
        except Exception as error:
            log.debug("figures not read", extra=fields(error=error))
        await asyncio.sleep(_FIGURES_S)


async def run(
    config: SessionConfig,
    replies: Replies,
    directory: Path,
    starting: Future[SparkSession],
    started_s: float,
) -> None:
    """Warm Spark up, report that it is ready, and carry out commands until standard input ends.

    Args:
        config: the configuration.
        replies: takes the reports.
        directory: for state and Spark's scratch files, of this process.
        starting: Spark, which another thread starts.
        started_s: when the process started, by its monotonic clock.
    """
    clock = SystemClock()
    # A thread that waits for an instance's end must not occupy a thread that the end needs.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
    settings = config.settings
    compiling = asyncio.create_task(session_start.compile_loops(clock))
    client = await connect(settings.nats, name=f"mesh session {config.worker}")
    await ensure_buckets(client.jetstream(), settings.channels.replicas)
    spark = await asyncio.wrap_future(starting)
    await session_start.enough_loops(compiling)
    options = instance_options(config)
    if not cluster.is_local(settings.spark.master):
        cores = await asyncio.to_thread(cluster.wait_for_cores, spark, settings.spark)
        await asyncio.to_thread(cluster.check_executors, spark, cores)
    shared_query = (
        session_start.start_shared_query(spark, config, options, directory)
        if settings.spark.shared_query
        else None
    )
    await session_start.warm_up(spark, client, config, options, shared_query, directory)
    reader = asyncio.StreamReader(limit=1 << 24)
    # A stop that fails ends the session, visibly.
    async with asyncio.TaskGroup() as tasks:
        session = Session(
            config, directory, spark, client, replies, options, shared_query, tasks.create_task
        )
        replies.send(Ready(spark.version, round(clock.monotonic_s() - started_s, 1)))
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        # Without the port they have no reader.
        reporting = (
            [tasks.create_task(_report_figures(spark, replies))]
            if settings.worker.probe_port
            else []
        )
        while line := await while_open(client, reader.readline()):
            await session.handle(line)
        await end(reporting)
        await session.stop_all()
    await close(client)
    spark_session.stop(spark)
