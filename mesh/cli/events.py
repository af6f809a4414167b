"""``mesh publish`` and ``mesh tap``: publish events to a stream, print events of a stream."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from mesh.cli.options import AppArgument, OutputOption, takes_cluster_and_nats
from mesh.cli.output import Output, counted, show, show_error
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.cli.context import Context
    from mesh.jetstream.channel_reader import Message

_PANEL = "Events"
StreamArgument = Annotated[str, typer.Argument(help="Stream of the app.", metavar="STREAM")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel=_PANEL)(publish)
    app.command(rich_help_panel=_PANEL)(tap)


@takes_cluster_and_nats
def publish(
    app: AppArgument,
    stream: StreamArgument,
    file: Annotated[Path, typer.Argument(help="JSON lines or CSV, '-' for standard input.")] = Path(
        "-"
    ),
    csv: Annotated[
        bool, typer.Option("--csv", help="Read CSV with a line of names; default for .csv files.")
    ] = False,
    time: Annotated[
        str, typer.Option(metavar="NAME", help="Attribute with the event time, ms since 1970.")
    ] = "",
    *,
    at: Context,
    output: OutputOption = Output.TEXT,
) -> None:
    """Publish events to a stream, each line one message.

    JSON lines are published unchanged. CSV values get the types of the app's definition.

    Example: `mesh publish Temperature TempStream readings.csv`
    """
    from mesh.cli import wire

    is_csv = csv or file.suffix.lower() == ".csv"
    schema = _schema(at, app, stream) if is_csv else {}
    with _lines(file) as lines:
        events = wire.csv_events(lines, schema) if is_csv else wire.json_lines(lines)
        sent = asyncio.run(_publish(at, app, stream, events, time))
    told = f"{counted(sent, 'event')} published to {subject_of(app, stream)}"
    show(output, {"app": app, "stream": stream, "events": sent}, told)


@takes_cluster_and_nats
def tap(
    app: AppArgument,
    stream: StreamArgument,
    count: Annotated[
        int, typer.Option(min=0, help="End after this number of events; 0 for no limit.")
    ] = 0,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the channel's oldest event.")
    ] = False,
    *,
    at: Context,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print the events of a stream as they arrive, one JSON object per line, until Ctrl-C.

    With `--output json` each line also has the subject and the time in ms since 1970: that of the
    publisher's header `Mesh-Timestamp`, else of storage, else of arrival here without
    `--from-start`. With it, the sequence of the message as well.

    Example: `mesh tap Temperature AlertStream --from-start --count 10`
    """
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(_tap(at, app, stream, count, from_start, output))


@contextlib.contextmanager
def _lines(file: Path) -> Iterator[Iterator[str]]:
    if str(file) == "-":
        yield iter(sys.stdin)
        return
    try:
        with file.open() as opened:
            yield iter(opened)
    except (OSError, UnicodeDecodeError) as error:
        raise MeshError("MESH-U120", f'file "{file}" can\'t be read', detail=f"{error}.") from error


def _schema(at: Context, app: str, stream: str) -> dict[str, str]:
    from mesh.cli.client import Client

    with Client(at) as client:
        streams: dict[str, dict[str, str]] = client.app(app)["streams"]
    if stream not in streams:
        raise MeshError(
            "MESH-U123",
            f'app "{app}" has no stream "{stream}" on the wire',
            detail=f"Its streams: {', '.join(sorted(streams))}.",
        )
    return streams[stream]


def subject_of(app: str, stream: str) -> str:
    """The subject of a stream; MESH-U121 for names that can't be."""
    from mesh.model import names

    if not names.is_app_name(app) or not stream.isidentifier():
        raise MeshError("MESH-U121", f'"{app}" and "{stream}" are no app and stream')
    return names.subject(app, stream)


async def _publish(at: Context, app: str, stream: str, events: Iterator[bytes], time: str) -> int:
    from mesh.cli import wire
    from mesh.model.names import EVENT_TIME_HEADER

    subject = subject_of(app, stream)
    async with wire.connected(checked(at)) as client:
        publisher = wire.Publisher(client, subject)
        try:
            for data in events:
                headers = {EVENT_TIME_HEADER: _time(data, time)} if time else None
                await publisher.send(data, headers)
            await publisher.settle()
        except wire.NoStreamError as error:
            raise MeshError(
                "MESH-N111",
                f'no channel takes "{subject}"',
                detail=_stored(publisher.stored) if publisher.stored else None,
                hint=f'Is the app deployed, and does it define and read "{stream}"? mesh apps',
            ) from error
        except (wire.RefusedError, TimeoutError) as error:
            told = f"{str(error) or 'No answer in time'}. {_stored(publisher.stored)}"
            raise MeshError("MESH-N112", "events were not accepted", detail=told) from error
    return publisher.stored


def _stored(count: int) -> str:
    return f"{counted(count, 'event')} stored before."


def _time(data: bytes, name: str) -> str:
    try:
        return str(int(orjson.loads(data)[name]))
    except (ValueError, KeyError, TypeError) as error:
        raise MeshError(
            "MESH-U124", f'event has no time in "{name}"', detail=f"{data[:100]!r}."
        ) from error


def checked(at: Context) -> Context:
    """The context, if it names NATS; otherwise MESH-U111."""
    if not at.nats:
        raise MeshError(
            "MESH-U111",
            "no NATS named",
            hint="--nats or MESH_NATS_URL names it; 'mesh dev' writes it into the context file.",
        )
    return at


async def _tap(
    at: Context, app: str, stream: str, count: int, from_start: bool, output: Output
) -> None:
    from mesh.cli import wire

    subject_of(app, stream)
    left = count or sys.maxsize
    read = wire.stored if from_start else wire.live
    async with (
        wire.connected(checked(at)) as client,
        contextlib.aclosing(read(client, app, stream)) as messages,
    ):
        async for message in messages:
            for line in _shown(message, output)[:left]:
                sys.stdout.write(line + "\n")
                left -= 1
            sys.stdout.flush()
            if left <= 0:
                return


def _shown(message: Message, output: Output) -> list[str]:
    from mesh.cli import wire
    from mesh.model.names import EVENT_TIME_HEADER

    headers = message.headers or {}
    try:
        events = wire.decode(message.data, message.content_type or "")
    except MeshError as error:
        show_error(error)
        return []
    if output is Output.JSON:
        time_ms = headers.get(EVENT_TIME_HEADER, "")
        at_ms = int(time_ms) if time_ms.isascii() and time_ms.isdigit() else message.time_ms
        more = {"subject": message.subject, "time_ms": at_ms}
        if message.sequence:
            more["sequence"] = message.sequence
        events = [{**more, "event": event} for event in events]
    return [orjson.dumps(event).decode() for event in events]
