"""``mesh publish`` and ``mesh tap``: publish events to a stream, print events of a stream.

``mesh query``: an on-demand query of a table, a named window or an aggregation.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from mesh.cli.options import (
    AppArgument,
    CommandClient,
    OutputOption,
    takes_cluster,
    takes_cluster_and_nats,
)
from mesh.cli.output import Output, counted, show, show_error, show_json, show_table
from mesh.client import taps
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.client import ClientContext
    from mesh.model.answers import RowsAnswer
    from mesh.model.values import JsonObject


_PANEL = "Events"
StreamArgument = Annotated[str, typer.Argument(help="Stream of the app.", metavar="STREAM")]


class QueryOutput(StrEnum):
    """``--output``."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


QueryArgument = Annotated[
    str, typer.Argument(metavar="QUERY", help="As in 'from Prices on price > 10 select item'.")
]
FormOption = Annotated[QueryOutput, typer.Option("--output", "-o", help="Output format.")]
WatchOption = Annotated[
    float | None,
    typer.Option(
        "--watch", min=0.1, metavar="SECONDS",
        help="Ask again after this time, without end, and print an answer that has changed.",
    ),
]  # fmt: skip
PositionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--min-position", metavar="STREAM=SEQUENCE",
        help="Wait until the answer includes this message of a JetStream stream.",
    ),
]  # fmt: skip
PartialOption = Annotated[
    bool, typer.Option("--partial", help="Answer also if a part is missing, and name it.")
]


@takes_cluster
def query(
    app: AppArgument,
    query: QueryArgument,
    output: FormOption = QueryOutput.TABLE,
    watch: WatchOption = None,
    min_position: PositionOption = None,
    partial: PartialOption = False,
    *,
    at: ClientContext,
) -> None:
    """Read or change a table of a running app once, with an on-demand query.

    Named windows and aggregations can be read.  The answer is the state that was stored last, at
    most a second after its events.  A change is answered when it has been made.

    Example: `mesh query Shop "from Prices on price > 10.0 select item, price order by item"`
    """
    positions = dict(map(_position, min_position or []))
    with CommandClient(at) as client:
        answer = client.query(app, query, min_position=positions, partial=partial)
        _show(answer, output)
        while watch is not None:
            time.sleep(watch)
            before, answer = (
                answer,
                client.query(app, query, min_position=positions, partial=partial),
            )
            if answer["records"] != before["records"]:
                _show(answer, output)


def _position(text: str) -> tuple[str, int]:
    stream, _, sequence = text.rpartition("=")
    if not stream or not (sequence.isascii() and sequence.isdigit()):
        raise typer.BadParameter("is STREAM=SEQUENCE", param_hint="--min-position")
    return stream, int(sequence)


def _cells(row: list[object]) -> list[str | None]:
    """Values as text, numbers with all their digits."""
    return [
        value if value is None or isinstance(value, str) else orjson.dumps(value).decode()
        for value in row
    ]


def _show(answer: RowsAnswer, output: QueryOutput) -> None:
    names = [column["name"] for column in answer["details"]]
    if "changed" in answer and output is not QueryOutput.JSON:
        typer.echo(f"{counted(answer['changed'], 'row')} changed")
        return
    match output:
        case QueryOutput.JSON:
            show_json(answer)
        case QueryOutput.CSV:
            rows = csv.writer(sys.stdout, lineterminator="\n")
            rows.writerow(names)
            rows.writerows(map(_cells, answer["records"]))
            sys.stdout.flush()
        case QueryOutput.TABLE:
            show_table(names, map(_cells, answer["records"]))
    if output is not QueryOutput.JSON and answer.get("missing"):
        typer.echo(f"not in this answer: {', '.join(answer['missing'])}", err=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Apps of a cluster")(query)
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
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Publish events to a stream, each line one message.

    JSON lines are published unchanged. CSV values get the types of the app's definition.

    Example: `mesh publish Temperature TempStream readings.csv`
    """
    from mesh.client import wire

    is_csv = csv or file.suffix.lower() == ".csv"
    schema = _schema(at, app, stream) if is_csv else {}
    with _lines(file) as lines:
        events = wire.csv_events(lines, schema) if is_csv else wire.json_lines(lines)
        sent = asyncio.run(taps.publish(at, app, stream, events, time))
    message = f"{counted(sent, 'event')} published to {taps.subject_of(at, app, stream)}"
    show(output, {"app": app, "stream": stream, "events": sent}, message)


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
    at: ClientContext,
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


def _schema(at: ClientContext, app: str, stream: str) -> dict[str, str]:
    from mesh.cli.options import CommandClient

    with CommandClient(at) as client:
        streams = client.app(app)["streams"]
    if stream not in streams:
        raise MeshError(
            "MESH-U123",
            f'app "{app}" has no stream "{stream}" on the wire',
            detail=f"Its streams: {', '.join(sorted(streams))}.",
        )
    return streams[stream]


async def _tap(
    at: ClientContext, app: str, stream: str, count: int, from_start: bool, output: Output
) -> None:
    left = count or sys.maxsize
    tap = taps.AsyncTap(at, app, stream, from_start=from_start, skip=show_error)
    async with tap as events:
        async for one in events:
            sys.stdout.write(_line(one, output) + "\n")
            sys.stdout.flush()
            left -= 1
            if left <= 0:
                return


def _line(one: taps.StreamEvent, output: Output) -> str:
    if output is not Output.JSON:
        return orjson.dumps(one.event).decode()
    values: JsonObject = {"subject": one.subject, "time_ms": one.time_ms}
    if one.sequence:
        values["sequence"] = one.sequence
    return orjson.dumps({**values, "event": one.event}).decode()
