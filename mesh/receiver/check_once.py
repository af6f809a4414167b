"""Check of sources and sinks for a worker's agent: ``python -m mesh.receiver.check_once``.

A process of its own for each check: a connector that hangs or fails harms nothing that runs.  It
reads ``{"text": .., "only": [..], "reads": [..]}`` from its input, and writes the results.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import orjson

from mesh.processes.imports import import_nats
from mesh.telemetry import logs
from mesh.worker.protocol import SessionConfig, read_config

if TYPE_CHECKING:
    from collections.abc import Collection

    from mesh.model.values import JsonObject


async def results(
    config: SessionConfig,
    text: str,
    only: Collection[int] | None = None,
    reads: Collection[str] | None = None,
) -> list[JsonObject]:
    """The results for an app, each with its ``number`` among its sources and sinks, then stores.

    Args:
        config: of the worker.
        text: the app's.
        only: numbers of those to check; None for all.
        reads: as ``check_app`` takes them.

    Raises:
        MeshError: the text is invalid; NatsError, OSError.
    """
    from mesh.jetstream.connection import close, connect
    from mesh.receiver.checking import bound_app, check_app, connectors_in
    from mesh.receiver.host import environment_of, nats_of
    from mesh.receiver.store_check import store_checks

    app = bound_app(text)
    client = await connect(nats_of(config.settings), f"mesh check {config.worker}")
    try:
        environment = environment_of(config, client, lambda _: None)
        checks = await check_app(app, environment, only, reads)
    finally:
        await close(client)
    count = len(connectors_in(app))
    if only is None or any(number >= count for number in only):
        stores = await asyncio.to_thread(store_checks, app, count)
        checks += [one for one in stores if only is None or one.number in only]
    return [asdict(one) for one in checks]


def main() -> None:
    """Entry point of the process."""
    os.umask(0o077)
    import_nats()
    config = read_config()
    logs.configure(config.settings.log.level, config.settings.log.style)
    request = orjson.loads(sys.stdin.buffer.read())
    answer: object
    if request.get("stores"):
        from mesh.receiver.store_check import store_problem

        problem = store_problem(request["text"])
        # The error of an app that can't use its tables, or nothing.
        answer = {} if problem is None else problem.to_dict()
    else:
        reads = request.get("reads", ())
        answer = asyncio.run(results(config, request["text"], request["only"], reads))
    sys.stdout.buffer.write(orjson.dumps(answer, default=str))


if __name__ == "__main__":
    main()
