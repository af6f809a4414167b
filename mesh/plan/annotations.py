"""Annotations that would change what an app does, and are not supported yet, are refused.

Others that the reference engine has for its own threads and reports (``@Async``,
``@App:statistics``) mean nothing here and pass, as unknown ones do there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError, not_supported

if TYPE_CHECKING:
    from mesh.language.syntax import Annotation, App

_REFUSED_OF_APP = ("app:playback", "app:guarantee")
_REFUSED_OF_STREAM = ("source", "sink", "store", "map")


def check_annotations(app: App) -> None:
    """Refuse the annotations of ``app`` that are not supported yet."""
    for annotation in app.annotations:
        _check_app_annotation(annotation)
    for stream in app.streams:
        for annotation in stream.annotations:
            _check_stream_annotation(annotation)


def _check_app_annotation(annotation: Annotation) -> None:
    name = annotation.name.lower()
    if name in _REFUSED_OF_APP:
        raise not_supported(f"@{annotation.name}", annotation.position)
    creation = name == "app:transportchannelcreationenabled"
    if creation and (annotation.get() or "").lower() != "true":
        raise not_supported(f"@{annotation.name}('false')", annotation.position)


def _check_stream_annotation(annotation: Annotation) -> None:
    name = annotation.name.lower()
    if name in _REFUSED_OF_STREAM:
        raise not_supported(
            f"@{annotation.name}",
            annotation.position,
            hint="Publish events to the stream's subject, and subscribe to it.",
        )
    if name == "onerror" and (annotation.get("action") or "LOG").upper() != "LOG":
        raise not_supported("@OnError with another action than LOG", annotation.position)
    if name == "dist":
        raise MeshError(
            "MESH-P201",
            "@dist stands on a stream",
            hint="Put it before the query's 'from'.",
            position=annotation.position,
        )
