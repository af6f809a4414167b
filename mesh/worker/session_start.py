"""Steps of a session's start: native loops, the shared query, the warm-up.

The channels of warm-up apps that killed sessions left are removed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import sys
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from nats.js.errors import BucketNotFoundError, KeyNotFoundError, NotFoundError

from mesh.clock import SystemClock
from mesh.jetstream import channels
from mesh.jetstream.connection import UNREACHABLE, api_call
from mesh.model import names
from mesh.operators import loop_cache
from mesh.processes.bounded_process import die_with_parent
from mesh.spark import cluster, warmup
from mesh.spark import session as spark_session
from mesh.spark.shared_query.query import SCRIPTS, SHARED, SharedQuery
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nats.aio.client import Client
    from pyspark.sql import SparkSession

    from mesh.clock import Clock
    from mesh.spark.instance_context import InstanceOptions
    from mesh.spark.shared_query.slot_network import Address
    from mesh.worker.protocol import SessionConfig


log = logging.getLogger(__name__)

#: Interval of looks at the loops that are compiled.
_LOOK_S: Final = 0.2

_APP: Final = re.compile(rf"{names.ROOT}-(warmup-[0-9a-f]{{16}})-\w+-?\Z")
#: No warm-up takes as long; an older channel belongs to a session that was killed.
_LONGEST: Final = timedelta(hours=1)


def start_shared_query(
    spark: SparkSession, config: SessionConfig, options: InstanceOptions, directory: Path
) -> SharedQuery:
    """Start the query that instances share."""
    settings = config.settings.spark
    place = directory / "shared-query"
    if cluster.is_local(settings.master):
        count = spark_session.slot_count(settings.master)
        return _start(spark, options, place, lambda: count, SHARED)

    def now() -> int:
        return cluster.slot_count(settings, cluster.wait_for_cores(spark, settings))

    elsewhere = cluster.slots_address(settings, settings.slots_port)
    return _start(spark, options, place, now, SHARED, elsewhere)


def start_script_query(
    spark: SparkSession, config: SessionConfig, options: InstanceOptions, directory: Path
) -> SharedQuery:
    """Start the query that instances with functions of users share.

    Such a function may hang, crash its process or fill its memory, and only others of its kind
    wait for it then.
    """
    settings = config.settings.spark
    is_local = cluster.is_local(settings.master)
    # The port of the settings is the other query's.
    elsewhere = None if is_local else cluster.slots_address(settings, 0)
    place = directory / "script-query"
    return _start(spark, options, place, lambda: 1, SCRIPTS, elsewhere)


def _start(
    spark: SparkSession,
    options: InstanceOptions,
    directory: Path,
    slot_count: Callable[[], int],
    name: str,
    elsewhere: Address | None = None,
) -> SharedQuery:
    shared_query = SharedQuery(
        spark,
        directory,
        SystemClock(),
        nats=options.nats,
        slot_count=slot_count,
        retry_s=options.retry_s,
        name=name,
        elsewhere=elsewhere,
        report_s=options.snapshot_interval_s,
    )
    shared_query.start()
    return shared_query


async def compile_loops(clock: Clock) -> None:
    """Compile the operators' native loops, if the installation has not done so."""
    if loop_cache.is_compiled():
        return
    log.warning("native loops are not compiled yet; that takes a minute or two, once")
    started_s = clock.monotonic_s()
    # Runs while Spark starts; the compiler's memory is freed with its process.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "mesh.operators.precompile",
        stdin=asyncio.subprocess.DEVNULL,
        preexec_fn=die_with_parent(),
    )
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if code == 0:
        took_s = round(clock.monotonic_s() - started_s)
        log.info("native loops compiled", extra=fields(took_s=took_s))
    else:
        log.error("native loops were not compiled; the first batches will take long")


async def enough_loops(compiling: asyncio.Task[None]) -> None:
    """Wait for the loops that apps of this worker wait for; the others are compiled meanwhile."""
    while not compiling.done() and not loop_cache.suffices():
        await asyncio.wait([compiling], timeout=_LOOK_S)
    if compiling.done():
        compiling.result()


async def warm_up(
    spark: SparkSession,
    client: Client,
    config: SessionConfig,
    options: InstanceOptions,
    shared_query: SharedQuery | None,
    directory: Path,
) -> None:
    """Run an app through the session, and remove all traces of it."""
    await delete_left_over(client)
    app = warmup.app(app_name())
    js = client.jetstream()
    await channels.ensure_channels(client, app, config.settings.channels)
    try:
        await js.publish(app.channels[0].subject(), warmup.EVENT)
        scratch = directory / "warmup"
        if shared_query is not None:
            await asyncio.to_thread(warmup.warm_shared_query, shared_query, app, options, scratch)
            await asyncio.to_thread(_end_planners, spark)
        else:
            await asyncio.to_thread(warmup.warm, spark, app, options.nats, scratch)
    finally:
        await channels.delete_channels(js, app)
    await asyncio.to_thread(spark_session.shrink, spark)


def _end_planners(spark: SparkSession) -> None:
    """End what planned the shared query; queries of their own are rare."""
    try:
        spark_session.end_planners(spark)
    # It saves memory, and nothing else needs it.
    except Exception:
        log.exception("planners not ended")


def app_name() -> str:
    """A new name for a warm-up app; it does not depend on the worker's name."""
    return f"warmup-{secrets.token_hex(8)}"


def app_of(js_stream: str) -> str | None:
    """The warm-up app that made a JetStream stream; None for any other stream."""
    match = _APP.match(js_stream)
    return match[1] if match else None


def is_left_over(created: str, now: str, longest: timedelta = _LONGEST) -> bool:
    """Whether a warm-up's stream is older than any warm-up takes.

    Args:
        created: the server's time when it made the stream, RFC 3339.
        now: the server's present time.
        longest: time that no warm-up takes.
    """
    return datetime.fromisoformat(now) - datetime.fromisoformat(created) > longest


async def delete_left_over(client: Client, longest: timedelta = _LONGEST) -> None:
    """Delete the streams of warm-ups whose sessions were killed.

    Without an answer from NATS it deletes nothing; the next session tries again.
    """
    try:
        await _delete_left_over(client, longest)
    except UNREACHABLE as error:
        log.debug("channels of earlier warm-ups not deleted", extra=fields(error=error))


async def _delete_left_over(client: Client, longest: timedelta) -> None:
    js = client.jetstream()
    for name in await _stream_names(client):
        app = app_of(name)
        if app is None:
            continue
        info = await api_call(client, f"STREAM.INFO.{name}", {})
        if "error" in info or not is_left_over(info["created"], info["ts"], longest):
            continue
        if not await _is_deployed(client, app):
            with suppress(NotFoundError):
                await js.delete_stream(name)


async def _stream_names(client: Client) -> list[str]:
    streams: list[str] = []
    while True:
        page = await api_call(client, "STREAM.NAMES", {"offset": len(streams)})
        streams += page.get("streams") or []
        if not page.get("streams") or len(streams) >= page["total"]:
            return streams


async def _is_deployed(client: Client, app: str) -> bool:
    """Whether a user deployed an app of this name."""
    try:
        apps = await client.jetstream().key_value(names.APPS_BUCKET)
        await apps.get(names.app_key(app))
    except (BucketNotFoundError, KeyNotFoundError, NotFoundError):
        return False
    return True
