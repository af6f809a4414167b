"""Faults of one machine, or by an operator: streams deleted and purged, a JVM that stands still."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from nats.js.errors import APIError, NotFoundError

from bench.chaos import app
from bench.chaos.disks import Disks
from bench.chaos.faults import requests
from bench.chaos.scene import ScenarioError
from bench.chaos.stage import PAST_TERMS_S, WORKERS
from mesh.jetstream import evidence, kv
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.chaos.scene import Scene

#: Time in which a JVM does nothing, seconds.
_STILL_S: Final = 20.0
#: Open files that a process may have beyond those that it has.
_FILES: Final = 8
#: Messages that stay in an input that is purged: those after them may be unread.
_KEPT: Final = 100
#: Payloads of records that no version writes, and of later versions.
_RECORDS: Final = (
    b"", b"{}", b"null", b"[1]", b"no JSON", b"\xff", b'{"holder": 3}',
    b'{"id": "x", "role": "boss", "incarnation": "x", "address": "", "beat": 1}',
    b'{"id": "x", "role": "worker", "incarnation": "x", "address": "", "beat": 1, "new": {}}',
)  # fmt: skip
#: A library that moves the clock of a process, compiled where the machine has a compiler.
_CLOCK: Final = Path(__file__).parent.parent / "clock_offset.c"
COMPILER: Final = shutil.which("cc")
#: Runs a command with a /dev/shm of its own.
_SHM_BYTES: Final = 1 << 20
_SMALL_SHM: Final = (
    "unshare", "--mount", "sh", "-c",
    f'mount -t tmpfs -o size={_SHM_BYTES} tmpfs /dev/shm && exec "$0" "$@"',
)  # fmt: skip
#: Groups of an app beside the one under load.
_GROUPS: Final = 1_200_000
_AT_ONCE: Final = 2000
_MANY: Final = """@App:name('{name}')
define stream S (k long);
from S select k, count() as n group by k having n > 1 insert into Twice;
"""


async def jvm_stopped(scene: Scene) -> None:
    """The JVM of a session does nothing for a while."""
    session = scene.stage.processes.session_pid(scene.holder)
    found = [p for p in psutil.Process(session).children(recursive=True) if p.name() == "java"]
    if not found:
        raise ScenarioError("the session has no JVM")
    scene.hit()
    for one in found:
        one.suspend()
    try:
        await scene.passing(_STILL_S)
    finally:
        for one in found:
            one.resume()
    await scene.flow(100)


def bucket_deleted(stream: str) -> Callable[[Scene], Awaitable[None]]:
    """A bucket of the mesh is deleted under load; later a session dies, and is replaced."""

    async def play(scene: Scene) -> None:
        outside = scene.outside
        js = outside.client.jetstream()
        scene.hit()
        await js.delete_stream(stream)

        async def is_whole() -> bool:
            with contextlib.suppress(NotFoundError):
                return not await evidence.missing(js)
            return False

        await outside.until(f"{stream} again", is_whole)
        await outside.until_running(scene.name)
        # The next snapshots are stored by then.
        await scene.passing(10.0)
        scene.stage.processes.kill_session(scene.holder)
        await scene.flow(100)
        await outside.until_running(scene.name)
        await scene.flow(100)

    return play


async def input_purged(scene: Scene) -> None:
    """An operator purges the input, but for the last messages."""
    scene.hit()
    stream = names.js_stream(scene.name, app.INPUT)
    for _ in range(3):
        await scene.flow(2 * _KEPT)
        await scene.outside.js.purge_stream(stream, keep=_KEPT)
    await scene.flow(100)


async def outputs_purged(scene: Scene) -> None:
    """An operator purges outputs, and with them the markers of their writers."""
    js = scene.outside.js
    scene.hit()
    for stream in ("Counts", "Flat", "Means") * 2:
        await scene.flow(_KEPT)
        js_stream = names.js_stream(scene.name, stream)
        read = await scene.outside.messages(js_stream, names.subject(scene.name, stream))
        rows = [list(json.loads(message.data).values()) for message in read]
        scene.purged.setdefault(stream, []).extend(rows)
        # Not the rows that are stored meanwhile, but all markers.
        await js.purge_stream(js_stream, seq=read[-1].metadata.sequence.stream + 1)
        await js.purge_stream(js_stream, subject=f"{names.marker_subject(js_stream)}.>")
    await scene.flow(100)


async def store_full(scene: Scene) -> None:
    """The store of JetStream has no room for a while: its limit, not its disk, to the last byte.

    Nothing is stored meanwhile, so that no manager can lead, and managers say why.
    """
    js, filler = scene.outside.js, "filler"
    await js.add_stream(name=filler, subjects=[filler])
    scene.hit()
    try:
        for size in (1_000_000, 1_000, 1):
            with contextlib.suppress(APIError):
                while True:
                    await js.publish(filler, bytes(size))
        await requests.says_why(scene, "m1", "JetStream has no room")
    finally:
        await js.delete_stream(filler)
    await scene.outside.until_running(scene.name)
    await scene.flow(200)


def stream_deleted(stream: str) -> Callable[[Scene], Awaitable[None]]:
    """A stream of the app is deleted under load; an operator follows the remedy of the fault.

    Events that were not read go with an input.  What was written before must be right all the same,
    and so must be all that the app makes of the events after the remedy.
    """

    async def play(scene: Scene) -> None:
        outside, js_stream = scene.outside, names.js_stream(scene.name, stream)
        scene.hit()
        await outside.js.delete_stream(js_stream)
        await scene.shows(re.escape(js_stream))
        await scene.shows("undeploy and deploy the app")
        found = await outside.service.verification.verify(scene.name)
        told = [one for one in found if (one.kind, one.where) == ("stream-missing", js_stream)]
        if not told or "undeploy and deploy" not in told[0].remedy:
            raise ScenarioError(f"verify does not tell it: {found}")
        await scene.check_written(without=stream)
        await outside.service.undeploy(scene.name, by="chaos")
        await outside.until("it is gone", lambda: outside.view.snapshot().app(scene.name) is None)
        await outside.service.deploy(scene.text, by="chaos")
        await outside.until_running(scene.name)
        await scene.flow(200)

    return play


async def shared_memory_full(scene: Scene) -> None:
    """A worker's /dev/shm has no room: it starts and runs so."""
    worker = scene.holder
    scene.hit()
    await asyncio.to_thread(scene.stage.processes.end, worker)
    scene.stage.start(worker, prefix=_SMALL_SHM)
    shm = Path(f"/proc/{scene.stage.processes.pid(worker)}/root/dev/shm")
    await outside_full(scene, shm)
    await scene.outside.until_ready(worker)
    await scene.order(scene.other, "draining")
    await scene.moved(scene.other)
    await scene.flow(300)
    await scene.order(scene.other, "open")
    scene.stage.processes.kill_session(worker)
    await scene.flow(100)
    await scene.outside.until_running(scene.name)


async def outside_full(scene: Scene, directory: Path) -> None:
    """Fill a small disk of another mount namespace, once it is there."""
    await scene.outside.until(f"{directory} is small", lambda: _size_of(directory) == _SHM_BYTES)
    Disks.fill(directory)


def _size_of(directory: Path) -> int:
    with contextlib.suppress(OSError):
        found = os.statvfs(directory)
        return found.f_blocks * found.f_frsize
    return 0


async def clocks_off(scene: Scene) -> None:
    """Clocks of both workers are an hour ahead, then an hour behind, then right again."""
    stage = scene.stage
    library, offset = stage.directory / "clock.so", stage.directory / "offset"
    assert COMPILER is not None
    command = COMPILER, "-shared", "-fPIC", "-o", str(library), str(_CLOCK), "-ldl"
    await asyncio.to_thread(subprocess.run, command, check=True)
    offset.write_bytes(struct.pack("=q", 0))
    moved = {"LD_PRELOAD": str(library), "MESH_CLOCK_OFFSET": str(offset)}
    try:
        for worker in WORKERS:
            await asyncio.to_thread(stage.processes.end, worker)
            stage.start(worker, **moved)
            await scene.outside.until_ready(worker)
        await scene.outside.until_running(scene.name)
        await scene.flow(100)
        scene.hit()
        before = _places(scene), scene.pids()
        for seconds in (3600, -3600, 0):
            with offset.open("r+b") as file:
                file.write(struct.pack("=q", seconds))
            # Past the terms of heartbeats, leases and retries.
            await scene.passing(2 * PAST_TERMS_S)
            if (_places(scene), scene.pids()) != before:
                raise ScenarioError(f"clocks moved by {seconds} s have moved something")
        await scene.flow(100)
    finally:
        for worker in WORKERS:
            if stage.processes.is_alive(worker):
                await asyncio.to_thread(stage.processes.end, worker)


def _places(scene: Scene) -> dict[str, tuple[str, int]]:
    return {one.instance: (one.worker, one.epoch) for one in scene.assignments()}


async def files_scarce(scene: Scene) -> None:
    """The processes of a worker may open few more files."""
    parent = psutil.Process(scene.stage.processes.pid(scene.holder))
    limits: list[tuple[int, tuple[int, int]]] = []
    scene.hit()
    try:
        for one in [parent, *parent.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                before = resource.prlimit(one.pid, resource.RLIMIT_NOFILE)
                limits.append((one.pid, before))
                few = one.num_fds() + _FILES
                resource.prlimit(one.pid, resource.RLIMIT_NOFILE, (few, before[1]))
        await scene.flow(500)
    finally:
        for pid, before in limits:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    await scene.flow(100)


async def records_foreign(scene: Scene) -> None:
    """Records that can't be read, and of another version, in all buckets that are watched."""
    js = scene.outside.js
    keys = {
        names.CONTROL_BUCKET: ("node.worker.x", "assignment.x-y-1", "form.x.y", "standby.x-y-1"),
        names.APPS_BUCKET: ("app.Foreign",),
        names.STATUS_BUCKET: ("status.x-y-1",),
    }
    places = [(bucket, key) for bucket, ours in keys.items() for key in ours]
    scene.hit()
    try:
        for payload in _RECORDS:
            for bucket, key in places:
                await kv.put(js, bucket, key, payload)
            await scene.flow(50)
    finally:
        for bucket, key in places:
            await kv.put(js, bucket, key, None)
    await scene.flow(100)


async def million_groups(scene: Scene) -> None:
    """Another app gets an event of each of 1.2 million groups, on the same workers."""
    name = f"{scene.name}Many"
    service, js = scene.outside.service, scene.outside.js
    await service.deploy(_MANY.format(name=name), by="chaos")
    await scene.outside.until_running(name)
    scene.hit()
    subject = names.subject(name, app.INPUT)
    for first in range(0, _GROUPS, _AT_ONCE):
        events: list[Any] = [{"k": k} for k in range(first, first + _AT_ONCE)]
        await js.publish(subject, json.dumps(events).encode())
    await js.publish(subject, json.dumps({"k": _GROUPS - 1}).encode())
    stream, out = names.js_stream(name, "Twice"), names.subject(name, "Twice")

    async def is_out() -> bool:
        return await scene.outside.count(stream, out) == 1

    await scene.outside.until("the group with two events", is_out)
    await service.undeploy(name)
    await scene.flow(100)
