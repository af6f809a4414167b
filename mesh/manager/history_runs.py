"""A history while it runs: its process, its checkpoints, and the states that are stored at the end.

    checkpoint ──▶ process ──▶ reports, checkpoints ──▶ states ──▶ first snapshots of the app
        ▲             │ it ends early
        └─────────────┘

A process that ends is started again from the last checkpoint, as long as each comes further than
the one before.  So does the next deploy of the same app with the same history, by any manager.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from mesh.errors import MeshError
from mesh.files import scratch
from mesh.functions.script_switch import OF_MANAGERS
from mesh.jetstream import kv
from mesh.jetstream.history_checkpoints import HistoryCheckpoints
from mesh.model import codec, names
from mesh.model.history import HistoryReport
from mesh.plan.history_addresses import is_stream
from mesh.processes.bounded_process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from nats.js import JetStreamContext

    from mesh.jetstream.blob_store import BlobStore
    from mesh.model.history import HistoryState, HistoryTask

COMMAND: Final = (sys.executable, "-P", "-m", "mesh.history.process")
#: Interval of checkpoints, seconds.
CHECKPOINT_S: Final = 30.0
#: Bytes of one line: the last names all states.
_LINE_MAX: Final = 64 << 20


@dataclass(slots=True)
class HistoryRunner:
    """Runs histories."""

    js: JetStreamContext
    pieces: BlobStore
    #: Variables of the process besides this process's own, less the mesh's.
    environment: Mapping[str, str]
    #: Options of a connection, for processes that read a stream.
    nats: Mapping[str, str]
    command: Sequence[str] = COMMAND
    checkpoint_s: float = CHECKPOINT_S
    #: Of the processes that run now.
    pids: set[int] = field(default_factory=set)

    async def run(
        self, task: HistoryTask, tell: Callable[[HistoryReport], Awaitable[None]]
    ) -> HistoryReport:
        """Run a history, and store its states as the first snapshots of the app's groups.

        Its checkpoint stays: the app may not have begun when this manager ends.

        Args:
            task: the order, without a directory, a checkpoint and a login.
            tell: receives the reports.

        Returns:
            The last report.

        Raises:
            MeshError: MESH-C161 for inputs that can't be used, MESH-C162 if the process ends.
        """
        checkpoints = HistoryCheckpoints(self.js, self.pieces, task.spec.name)
        reads_stream = any(is_stream(one.path) for one in task.inputs)
        reached = -1
        while True:
            with scratch.directory("history") as directory:
                begun = await checkpoints.load(directory)
                rows = begun.rows if begun is not None else 0
                order = replace(
                    task, directory=str(directory), checkpoint=begun,
                    checkpoint_s=self.checkpoint_s, nats=self.nats if reads_stream else {},
                )  # fmt: skip
                try:
                    report = await self._reported(order, checkpoints, tell)
                except MeshError as error:
                    if error.code != "MESH-C162" or rows <= reached:
                        raise
                    reached = rows
                    continue
                await self._store(task.incarnation, report.states)
            return report

    async def _reported(
        self,
        task: HistoryTask,
        checkpoints: HistoryCheckpoints,
        tell: Callable[[HistoryReport], Awaitable[None]],
    ) -> HistoryReport:
        report = HistoryReport()
        async with aclosing(self._run(task)) as reports:
            async for report in reports:
                if report.checkpoint is not None:
                    await checkpoints.store(report.checkpoint, Path(task.directory))
                await tell(report)
        return report

    async def _run(self, task: HistoryTask) -> AsyncGenerator[HistoryReport, None]:
        """The reports of the process; MESH-C162 if it ends without a result."""
        process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**process_environment(), **self.environment},
            start_new_session=True,
            preexec_fn=die_with_parent(),
            limit=_LINE_MAX,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self.pids.add(process.pid)
        try:
            await _write(process.stdin, codec.encode(task) + b"\n")
            while line := await process.stdout.readline():
                report = codec.decode(HistoryReport, line)
                if report.error is not None:
                    raise _of(report.error)
                yield report
                if report.is_done:
                    return
                if report.checkpoint is not None:
                    # It is stored: the process may make the next, and remove files of this one.
                    await _write(process.stdin, b"\n")
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

    async def _store(self, incarnation: str, states: Sequence[HistoryState]) -> None:
        """Store the states as the first snapshots of the app's groups."""
        bucket = await kv.open_bucket(self.js, names.SNAPSHOTS_BUCKET)
        for one in states:
            objects: dict[str, str] = {}
            for piece, path in one.pieces.items():
                objects[piece] = f"{incarnation}/{one.group}/{one.part}/0/{piece}"
                await self.pieces.put(
                    objects[piece], await asyncio.to_thread(Path(path).read_bytes)
                )
            values = {"epoch": 0, "objects": objects, "manifest": orjson.loads(one.manifest)}
            key = f"{incarnation}.{one.group}.{one.part}"
            await bucket.put(key, orjson.dumps(values))


async def _write(pipe: asyncio.StreamWriter, data: bytes) -> None:
    """Write to a process; that it has ended is seen when it is read."""
    pipe.write(data)
    with suppress(ConnectionError):
        await pipe.drain()


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
    variables = {n: v for n, v in os.environ.items() if not n.startswith("MESH_")}
    return {**variables, **OF_MANAGERS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
