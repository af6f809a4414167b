"""Permission of an app to read JetStream streams of the mesh that are not those of its channels.

A manager decides for the author of a text, and writes the permitted streams into each group.  A
worker compares them again with what a group is about to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mesh.model.app import GroupSpec


def streams_of_others(app: str, js_streams: Iterable[str]) -> tuple[str, ...]:
    """The JetStream streams of the mesh that are not those of an app's channels, each once."""
    return tuple(
        dict.fromkeys(
            name
            for name in js_streams
            if names.is_mesh_stream(name) and names.app_of_js_stream(name) != app
        )
    )


def check_stream(app: str, js_stream: str, permitted: Collection[str]) -> None:
    """Refuse a stream of the mesh that the author of an app was not allowed to read; MESH-C135."""
    for name in streams_of_others(app, (js_stream,)):
        if name not in permitted:
            raise MeshError(
                "MESH-C135",
                f'app "{app}" may not read JetStream stream "{name}"',
                detail="It holds events of another app, or records of the mesh, and the plan of "
                "the app has no permission for it.",
                hint="A user with data.read for the other app deploys the text again; records need "
                "the permission admin.",
            )


def check_inputs(group: GroupSpec) -> None:
    """Refuse a group that reads streams without permission: MESH-C135.

    Groups of earlier versions have no list of streams.  They continue to read streams of apps,
    which those versions have decided about, and no records of the mesh.
    """
    streams = [stream for one in group.inputs for stream in one.channel.js_streams]
    for name in streams_of_others(group.app, streams):
        if group.reads is not None or names.app_of_js_stream(name) is None:
            check_stream(group.app, name, group.reads or ())
