"""``mesh query``: an on-demand query of a table, a named window or an aggregation."""

from __future__ import annotations

import csv
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from mesh.cli.client import CommandClient
from mesh.cli.options import AppArgument, takes_cluster
from mesh.cli.output import counted, show_json, show_table

if TYPE_CHECKING:
    from mesh.client import ClientContext
    from mesh.model.answers import RowsAnswer


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


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Apps of a cluster")(query)


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
