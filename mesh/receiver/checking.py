"""Check of an app's sources and sinks: opens each, reads a sample, and takes or writes nothing.

A connector may have a method ``check(context)``, which is called instead of ``open`` and ``read``:
for one whose ``open`` writes, or whose ``read`` takes messages away from others.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mesh.connect import registry
from mesh.connect.contract import Context, UnavailableError
from mesh.connect.spec import Role
from mesh.language.parser import parse
from mesh.model.values import JsonMapping
from mesh.plan.bind import bind
from mesh.plan.connectors import check_connector, connector_of, make_mapper
from mesh.plan.outside_calls import as_planned
from mesh.plan.reads import stream_of_connector
from mesh.receiver.decoding import decoded_batch
from mesh.receiver.opened import Opened, with_schema
from mesh.receiver.outcomes import reason_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mesh.connect.contract import Batch
    from mesh.language.syntax import Annotation
    from mesh.plan.bound import BoundApp
    from mesh.receiver.environment import HostEnvironment

#: Time for one source or sink, and for its sample; events of a sample.
_OPEN_S: Final = 15.0
_SAMPLE_S: Final = 3.0
_SAMPLE_EVENTS: Final = 3
_INSTANCE: Final = "mesh-check"


@dataclass(frozen=True, slots=True)
class ConnectorCheck:
    """The result for one source, or one destination of a sink."""

    #: Of the source or sink among those of the app, from 0.
    number: int
    stream: str
    #: ``source http``, ``sink http 2``.
    name: str
    endpoint: str
    #: Why it can't be opened; empty if it can.
    problem: str = ""
    #: Events that were read, a few of them, and reasons for those that the mapper refuses.
    sample: tuple[JsonMapping, ...] = ()
    refused: tuple[str, ...] = ()


def bound_app(text: str) -> BoundApp:
    """An app with its statements as sources and sinks, as its workers run it.

    Raises:
        MeshError: the text is invalid.
    """
    return bind(as_planned(parse(text)))


async def check_app(
    app: BoundApp,
    environment: HostEnvironment,
    only: Collection[int] | None = None,
    reads: Collection[str] | None = None,
) -> list[ConnectorCheck]:
    """Check each source and sink of an app in turn, or those of some numbers.

    Args:
        app: of ``bound_app``.
        environment: of the worker.
        only: numbers of the sources and sinks to check; None for all.
        reads: streams of others in the mesh that it may read; None for all that it names, with a
            login of the caller's own.

    Raises:
        MeshError: a source or sink can't run here.
    """
    checks = []
    all_connectors = connectors_in(app)
    if reads is None:
        reads = [
            name
            for _, a in all_connectors
            if (name := stream_of_connector(connector_of(a))) is not None
        ]
    environment = environment.of_app(app.name, reads)
    for place, (stream, annotation) in enumerate(all_connectors):
        if only is not None and place not in only:
            continue
        connector = connector_of(annotation)
        schema = app.stream(stream)
        check_connector(connector, schema)
        spec = registry.find(connector.role, connector.type)
        assert spec is not None, "checked above"
        opened = Opened(connector, spec, schema, make_mapper(connector, schema))
        for number, options in enumerate(connector.destinations or ({},), 1):
            name = connector.kind + (f" {number}" if len(connector.destinations) > 1 else "")
            checks.append(await _checked(app.name, place, name, opened, options, environment))
    return checks


def connectors_in(app: BoundApp) -> list[tuple[str, Annotation]]:
    """Stream and annotation of each source and sink, in the order of their numbers."""
    return [one for one in app.stream_annotations if one[1].name.lower() in ("source", "sink")]


async def _checked(
    app: str,
    place: int,
    name: str,
    opened: Opened,
    options: Mapping[str, str],
    environment: HostEnvironment,
) -> ConnectorCheck:
    stream = opened.stream.name
    endpoint = ""
    try:
        names = opened.secrets(environment)
        secrets = await environment.secrets(names, environment.app) if names else {}
        values = opened.values(environment, options, secrets)
        endpoint = opened.endpoint(environment, options)
        endpoint = endpoint.replace("{app}", app).replace("{stream}", stream)
        kind = getattr(opened.mapper, "content_type", "")
        context = Context(
            app, stream, values, environment.access, kind, _INSTANCE, environment.client
        )
        async with asyncio.timeout(_OPEN_S):
            opened = await with_schema(opened, environment.access)
            batch = await _opened(environment.make(opened.spec), opened, context)
    # A connector is code of others.
    except Exception as error:
        return ConnectorCheck(place, stream, name, endpoint, reason_of(error))
    if batch is None or not batch.payloads:
        return ConnectorCheck(place, stream, name, endpoint)
    few = replace(
        batch,
        payloads=batch.payloads[:_SAMPLE_EVENTS],
        properties=batch.properties[:_SAMPLE_EVENTS] if batch.properties is not None else None,
        refused={at: one for at, one in batch.refused.items() if at < _SAMPLE_EVENTS},
    )
    used = opened.connector.map.properties
    read = decoded_batch(opened.mapper, opened.stream.arrow, few, used)
    reasons = tuple(reason for _, _, reason in read.errors)
    sample = tuple(read.rows.slice(0, _SAMPLE_EVENTS).to_pylist())
    return ConnectorCheck(place, stream, name, endpoint, sample=sample, refused=reasons)


async def _opened(connector: Any, opened: Opened, context: Context) -> Batch | None:
    """Open and close it; the first batch of a source that reads by itself."""

    async def refuse(*_: object) -> int:
        raise UnavailableError("it is being checked", retry_after_s=1.0)

    if hasattr(connector, "check"):
        first_batch: Batch | None = await connector.check(context)
        return first_batch
    try:
        if opened.spec.role is Role.SINK:
            await connector.open(context, None)
        elif not hasattr(connector, "read"):
            await connector.open(context, refuse)
        else:
            await connector.open(context, None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SAMPLE_S):
                    while not (batch := await connector.read()):
                        continue
                    return batch  # type: ignore[no-any-return]  # of any connector
        return None
    finally:
        await connector.close()
