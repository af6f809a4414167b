"""The JetStream streams of the mesh that the text of an app reads, besides those of its channels.

Query groups read some streams themselves, connectors read others over the connection of their host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mesh.connect.spec import Role
from mesh.model.access import streams_of_others
from mesh.plan.bind.apps import bind_group
from mesh.plan.connectors import NATS, connector_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mesh.model.app import AppSpec, GroupSpec
    from mesh.plan.connectors import Connector

_CONNECTOR = f"{Role.SOURCE} {NATS}"
_SERVERS = frozenset({"server.urls", "bootstrap.servers"})


def stream_of_connector(connector: Connector) -> str | None:
    """The JetStream stream of the mesh's own servers that a source reads; None for another source.

    A reference may name other servers, which only the worker knows.
    """
    options = {name.lower(): text for name, text in connector.options.items()}
    if connector.kind != _CONNECTOR or _SERVERS & set(options):
        return None
    return options.get("stream")


def _streams_of(group: GroupSpec) -> Iterator[str]:
    for one in group.inputs:
        yield from one.channel.js_streams
    if _CONNECTOR in group.connectors:
        for _, annotation in bind_group(group).stream_annotations:
            if annotation.name.lower() == Role.SOURCE:
                yield from filter(None, [stream_of_connector(connector_of(annotation))])


def may_read_by_connectors(spec: AppSpec) -> bool:
    """Whether connectors of an app may read such streams; ``reads_of`` then reads their texts."""
    return any(_CONNECTOR in group.connectors for group in spec.groups)


def reads_of(spec: AppSpec) -> Mapping[str, tuple[str, ...]]:
    """By group, the streams of the mesh that it reads and that are not its app's."""
    pairs = (
        (group.name, streams_of_others(spec.name, _streams_of(group))) for group in spec.groups
    )
    return {name: streams for name, streams in pairs if streams}


def with_reads(spec: AppSpec, reads: Mapping[str, tuple[str, ...]]) -> AppSpec:
    """A plan whose groups have these streams permitted, and no others."""
    if not reads and all(group.reads is None for group in spec.groups):
        return spec
    groups = tuple(replace(group, reads=reads.get(group.name)) for group in spec.groups)
    return replace(spec, groups=groups)
