"""Steps of a session's start: native loops, the shared query, the warm-up."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING

from mesh.clock import SystemClock
from mesh.jetstream import channels, server
from mesh.logs import fields
from mesh.operators import loop_cache
from mesh.spark import session as spark_session
from mesh.spark import warmup
from mesh.spark.shared_query.query import SharedQuery
from mesh.spark.shared_query.source import ScriptQuerySource, SharedQuerySource
from mesh.worker import warmup_channels

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client
    from pyspark.sql import SparkSession

    from mesh.clock import Clock
    from mesh.spark.instance_context import InstanceOptions
    from mesh.worker.protocol import SessionConfig

log = logging.getLogger(__name__)


def start_shared_query(
    spark: SparkSession, config: SessionConfig, options: InstanceOptions, directory: Path
) -> SharedQuery:
    """Start the query that instances share."""
    slot_count = spark_session.slot_count(config.settings.spark.master)
    return _start(spark, options, directory / "shared-query", slot_count, SharedQuerySource)


def start_script_query(
    spark: SparkSession, options: InstanceOptions, directory: Path
) -> SharedQuery:
    """Start the query that instances with functions of users share.

    Such a function may hang, crash its process or fill its memory, and only others of its kind
    wait for it then.
    """
    return _start(spark, options, directory / "script-query", 1, ScriptQuerySource)


def _start(
    spark: SparkSession,
    options: InstanceOptions,
    directory: Path,
    slot_count: int,
    source: type[SharedQuerySource],
) -> SharedQuery:
    shared_query = SharedQuery(
        spark,
        directory,
        SystemClock(),
        nats=options.nats,
        slot_count=slot_count,
        retry_s=options.retry_s,
        source=source,
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
        preexec_fn=server.die_with_parent(),
    )
    if await process.wait() == 0:
        took_s = round(clock.monotonic_s() - started_s)
        log.info("native loops compiled", extra=fields(took_s=took_s))
    else:
        log.error("native loops were not compiled; the first batches will take long")


async def warm_up(
    spark: SparkSession,
    client: Client,
    config: SessionConfig,
    options: InstanceOptions,
    shared_query: SharedQuery | None,
    directory: Path,
) -> None:
    """Run an app through the session, and remove all traces of it."""
    await warmup_channels.delete_left_over(client)
    app = warmup.app(warmup_channels.app_name())
    js = client.jetstream()
    await channels.ensure_channels(client, app, config.settings.channels)
    try:
        await js.publish(app.channels[0].subject(), warmup.EVENT)
        scratch = directory / "warmup"
        if shared_query is not None:
            await asyncio.to_thread(warmup.warm_shared_query, shared_query, app, options, scratch)
        else:
            await asyncio.to_thread(warmup.warm, spark, app, options.nats, scratch)
    finally:
        await channels.delete_channels(js, app)
    await asyncio.to_thread(spark_session.shrink, spark)
