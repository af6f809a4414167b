"""Past events of an input stream, in the text of an app.

    @source(type='history', path='orders/2025', time='ordered_at', until='2026-01-01T00:00:00Z')
    define stream Orders (item string, amount double);

It is no connector: nothing runs it while the app runs.  The deploy of a new app reads it once, as
``mesh deploy --backfill`` does, and an edit of the app does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.connect import registry
from mesh.connect.spec import Role
from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.language.syntax import find
from mesh.model.begin import StartPositionKind, parse_start_position
from mesh.model.history import HistoryInput
from mesh.plan.connectors import check_options, connector_of
from mesh.plan.history_addresses import is_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.language.syntax import Annotation, App, StreamDefinition

TYPE: Final = "history"


def is_history(annotation: Annotation) -> bool:
    """Whether an annotation of a stream names its past."""
    return annotation.name.lower() == "source" and annotation.get("type") == TYPE


def of_running(stream: StreamDefinition) -> Iterator[tuple[str, Annotation]]:
    """The annotations of a stream that mean something to an app that runs, each with its name."""
    yield from ((stream.name, one) for one in stream.annotations if not is_history(one))


def history_inputs(text: str) -> tuple[HistoryInput, ...]:
    """The past events that a text names, in its order."""
    inputs = []
    for _, stream, annotation in _sources(parse(text)):
        options = {name.lower(): value for name, value in connector_of(annotation).options.items()}
        time, until = options.get("time", ""), options.get("until")
        inputs.append(HistoryInput(stream.name, options["path"], time, until))
    return tuple(inputs)


def check_history(tree: App) -> None:
    """Refuse past events that can't be read as they are written.

    Raises:
        MeshError: MESH-P230 to MESH-P232 for its options.
    """
    spec = registry.find(Role.SOURCE, TYPE)
    assert spec is not None, "it is one of ours"
    for number, stream, annotation in _sources(tree):
        connector = connector_of(annotation)
        if number or find(annotation.annotations, "map") is not None or connector.ref:
            raise MeshError(
                "MESH-P232",
                f'stream "{stream.name}" can\'t have its past like that',
                detail="A stream has one history, whose columns are its attributes: it has no "
                "@map and no ref.",
                position=annotation.position,
            )
        check_options(
            spec, connector.options, [a.name for a in stream.attributes], connector.position
        )
        options = {name.lower(): value for name, value in connector.options.items()}
        if not options.get("time") and not is_stream(options["path"]):
            raise MeshError(
                "MESH-P231",
                'source "history" needs the option "time"',
                detail="It is the column with the times of events; messages of a stream have some.",
                position=connector.position,
            )
        _check_end(options.get("until"), annotation)


def _check_end(until: str | None, annotation: Annotation) -> None:
    if until is None:
        return
    try:
        kind = parse_start_position(until).kind
    except MeshError:
        kind = None
    if kind not in (StartPositionKind.SEQUENCE, StartPositionKind.TIME):
        raise MeshError(
            "MESH-P232",
            f'option "until" of source "history" is a sequence or a time, not "{until}"',
            position=annotation.position,
        )


def _sources(tree: App) -> Iterator[tuple[int, StreamDefinition, Annotation]]:
    """Each source of past events, with its number among those of its stream."""
    for stream in tree.streams:
        yield from (
            (number, stream, annotation)
            for number, annotation in enumerate(filter(is_history, stream.annotations))
        )
