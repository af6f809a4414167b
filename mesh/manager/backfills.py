"""Deploys with history: past events run into the states with which an app begins.

    making ──▶ channels ──▶ cut ──▶ events through groups, in a process ──▶ snapshots ──▶ running

The app is held until all of it is there.  A failure removes the app; what an ended manager has left
is replaced by the next deploy, which starts from the beginning.  No output of the history is
published, so there is nothing that could be doubled.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from mesh import scratch
from mesh.control import backfilling
from mesh.errors import MeshError
from mesh.functions.script_switch import OF_MANAGERS
from mesh.jetstream import snapshots, start_positions, stream_positions
from mesh.jetstream.server import die_with_parent
from mesh.model import codec, names
from mesh.model.addresses import split_list
from mesh.model.begin import StartPosition, StartPositionKind, parse_start_position
from mesh.model.history import Backfilled, HistoryReport, HistoryTask
from mesh.plan import history_files, history_tables
from mesh.plan.history import entrances
from mesh.store import sources

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.jetstream.blob_store import BlobStore
    from mesh.manager.deployments import Deployments, Tell
    from mesh.manager.planning import Planner
    from mesh.model.app import AppSpec
    from mesh.model.cluster import AppRecord
    from mesh.model.history import HistoryInput, HistoryState
    from mesh.settings import Settings

_COMMAND: Final = (sys.executable, "-P", "-m", "mesh.history.process")
#: Bytes of one line: the last names all states.
_LINE_MAX: Final = 64 << 20


class Backfills:
    """Deploys apps with history; the calls of ``mesh.api.history_service.Backfills``.

    Args:
        client: the connection to NATS.
        deployments: makes the apps.
        planner: computes plans.
        pieces: the store of states.
        settings: ``manager.history_dir``, ``manager.history_databases``, ``stores.sources_file``.
        clock: measures the time of a history.
        command: starts the process; tests give one of their own.
    """

    def __init__(
        self,
        client: Client,
        deployments: Deployments,
        planner: Planner,
        pieces: BlobStore,
        settings: Settings,
        clock: Clock,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self._client = client
        self._deployments = deployments
        self._planner = planner
        self._pieces = pieces
        self._root = settings.manager.history_dir
        self._databases = split_list(settings.manager.history_databases)
        self._sources = sources.variables("", settings.stores.sources_file)
        self._clock = clock
        self._command = command
        #: Of the processes that run now.
        self.pids: set[int] = set()

    async def backfill(
        self, text: str, inputs: Sequence[HistoryInput], *, by: str = ""
    ) -> Backfilled:
        """Deploy a new app that begins with the states that past events give.

        Args:
            text: SiddhiQL.
            inputs: the past events of input streams, one entry for each stream.
            by: the user.

        Raises:
            MeshError: MESH-C160 to MESH-C162 for an app, events or a process that fail, MESH-A409
                for an app that is there, MESH-A410 and MESH-A422 for an end that can't be kept; as
                ``Planner.plan`` for the text.
        """
        ends = {
            one.stream: parse_start_position(one.until) for one in inputs if one.until is not None
        }
        streams = tuple(dict.fromkeys(one.stream for one in inputs))
        if len(streams) < len(inputs):
            raise MeshError("MESH-A422", "a stream has two histories", detail="It may have one.")
        spec = await self._planner.plan(text)
        groups = await self._planner.history(spec, streams)
        for one in inputs:
            await asyncio.to_thread(self._check, one.path)
        began_s = self._clock.monotonic_s()
        told = HistoryReport()
        cuts: dict[str, int] = {}

        async def history(record: AppRecord, tell: Tell) -> Mapping[str, int]:
            nonlocal told
            for stream in streams:
                self._add(cuts, await self._cuts(record.spec, stream, ends.get(stream)))
            before_ms = {stream: end.time_ms for stream, end in ends.items() if end.time_ms}
            with scratch.directory("history") as directory:
                task = HistoryTask(
                    record.spec, record.incarnation, tuple(inputs), groups, self._root, before_ms,
                    cuts, str(directory),
                )  # fmt: skip
                async with aclosing(self._run(task)) as reports:
                    async for told in reports:
                        await tell(backfilling.progress(", ".join(streams), told))
                await self._store(record, told.states)
            return {s: n for s, n in cuts.items() if n}

        async def purged(record: AppRecord, tell: Tell) -> Mapping[str, int]:
            try:
                return await history(record, tell)
            except BaseException:
                await snapshots.purge(self._client.jetstream(), self._pieces, record.incarnation)
                raise

        await self._deployments.deploy_after(spec, by, purged)
        seconds = round(self._clock.monotonic_s() - began_s, 3)
        return Backfilled(
            spec.name, streams, told.rows, told.later, told.emitted, told.failed, seconds, cuts,
            groups,
        )  # fmt: skip

    def _check(self, path: str) -> None:
        """Refuse what is no history, before there is an app."""
        if history_tables.is_table(path):
            place = history_tables.table_of(self._root or os.devnull, path)
            history_tables.check_address(place, self._databases)
            return
        if not self._root:
            raise MeshError(
                "MESH-C161",
                "this manager reads no files of past events",
                detail="Its manager.history_dir is empty.",
                hint="Set it to a directory of the manager's machine, and put the files there.",
            )
        history_files.found(self._root, path)

    @staticmethod
    def _add(cuts: dict[str, int], more: Mapping[str, int]) -> None:
        """Add the cuts of a stream; two that read one JetStream stream end at one place."""
        for js_stream, sequence in more.items():
            if cuts.setdefault(js_stream, sequence) != sequence:
                raise MeshError(
                    "MESH-A422",
                    f"two histories end at different places of {js_stream}",
                    hint="Give both the same --until.",
                )

    async def _cuts(self, spec: AppSpec, stream: str, end: StartPosition | None) -> dict[str, int]:
        """By JetStream stream of the input: the last sequence that the past events include."""
        streams = [c.js_stream(p) for c in entrances(spec, stream) for p in range(c.partitions)]
        if end is None:
            return dict.fromkeys(streams, 0)
        states = {}
        for one in streams:
            state = await stream_positions.state(self._client, one)
            if state is not None:
                states[one] = state
        asked: dict[str, int] = {}
        if end.kind is StartPositionKind.TIME:
            asked = await start_positions.skipped_positions(self._client, streams, end)
        return backfilling.cuts(end, states, asked, self._clock.wall_ms())

    async def _run(self, task: HistoryTask) -> AsyncGenerator[HistoryReport, None]:
        """The reports of the process; MESH-C162 if it ends without a result."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**process_environment(), **self._sources},
            start_new_session=True,
            preexec_fn=die_with_parent(),
            limit=_LINE_MAX,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self.pids.add(process.pid)
        try:
            process.stdin.write(codec.encode(task) + b"\n")
            with suppress(ConnectionError):
                await process.stdin.drain()
            while line := await process.stdout.readline():
                report = codec.decode(HistoryReport, line)
                if report.error is not None:
                    raise _of(report.error)
                yield report
                if report.is_done:
                    return
            raise MeshError(
                "MESH-C162",
                "the process that runs the history has ended",
                detail=f"Its exit status: {await process.wait()}.",
                hint="The manager's log has its error; it needs the packages of a worker, and "
                "memory for the states.",
            )
        finally:
            self.pids.discard(process.pid)
            process.stdin.close()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _store(self, record: AppRecord, states: Sequence[HistoryState]) -> None:
        """Store the states as the first snapshots of the app's groups."""
        bucket = await self._client.jetstream().key_value(names.SNAPSHOTS_BUCKET)
        for one in states:
            objects: dict[str, str] = {}
            for piece, path in one.pieces.items():
                objects[piece] = f"{record.incarnation}/{one.group}/{one.part}/0/{piece}"
                await self._pieces.put(
                    objects[piece], await asyncio.to_thread(Path(path).read_bytes)
                )
            values = {"epoch": 0, "objects": objects, "manifest": orjson.loads(one.manifest)}
            key = f"{record.incarnation}.{one.group}.{one.part}"
            await bucket.put(key, orjson.dumps(values))


def _of(values: Mapping[str, object]) -> MeshError:
    detail, hint = values.get("detail"), values.get("hint")
    return MeshError(
        str(values["code"]),
        str(values["message"]),
        detail=None if detail is None else str(detail),
        hint=None if hint is None else str(hint),
    )


def process_environment() -> dict[str, str]:
    """The variables of the process: no login, and no functions of apps."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith("MESH_")}
    return {**kept, **OF_MANAGERS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
