"""``mesh errors``, ``replay`` and ``discard``: failed events."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from mesh.cli.options import AppArgument, CommandClient, OutputOption, takes_cluster
from mesh.cli.output import Output, counted, show, show_rows
from mesh.connect.spec import Kind, value_of

if TYPE_CHECKING:
    from mesh.client import ClientContext
    from mesh.model.values import JsonObject

_PANEL = "Apps of a cluster"

IdsArgument = Annotated[
    list[int] | None, typer.Argument(metavar="[ID]...", help="Ids that 'mesh errors' shows.")
]


class To(StrEnum):
    """``--to`` of ``mesh replay``."""

    CONNECTOR = "connector"
    STREAM = "stream"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (errors, replay, discard):
        app.command(rich_help_panel=_PANEL)(command)


@takes_cluster
def errors(
    app: AppArgument,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of events, the last ones.")
    ] = 20,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show events that could not be read or failed in a query, with the reason, oldest first.

    Example: `mesh errors Temperature --limit 5`
    """
    with CommandClient(at) as client:
        entries = client.failed(app, limit=limit)
    # A failure in a group with state is identified by its query, others by their message.
    rows = [
        (e["id"], e["stream"], e.get("sequence"), e.get("query"), e.get("reason"), _short(e))
        for e in entries
    ]
    show_rows(output, entries, ("id", "stream", "sequence", "query", "reason", "data"), rows)


@takes_cluster
def replay(
    app: AppArgument,
    ids: IdsArgument = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All failed events, a thousand at a time.")
    ] = False,
    event: Annotated[
        str,
        typer.Option(
            metavar="JSON", help="Corrected event to send instead of the event of a single ID."
        ),
    ] = "",
    to: Annotated[
        To, typer.Option(help="Where events of a sink go: to it alone, or to their stream.")
    ] = To.CONNECTOR,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Send failed events again, and delete them from the error stream.

    What a sink has refused goes to that sink and destination alone; all else to its stream, whose
    readers receive it like a new event.

    Example: `mesh replay Temperature 17 --event '{"roomNo": 3, "temp": 21.5}'`
    """
    chosen = _chosen(ids, all_)
    if event and (chosen is None or len(chosen) != 1):
        raise typer.BadParameter("needs exactly one ID", param_hint="--event")
    with CommandClient(at) as client:
        where: Any = "stream" if to is To.STREAM else None
        if event:
            done = client.replay(app, id=(chosen or [0])[0], event=_event(event), to=where)
        else:
            done = client.replay(app, ids=chosen, all=chosen is None or None, to=where)
    message = f"{counted(len(done['ids']), 'failed event')} replayed, {done['left']:,} left"
    show(output, done, message)


@takes_cluster
def discard(
    app: AppArgument,
    ids: IdsArgument = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All failed events, a thousand at a time.")
    ] = False,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="All events older than this: '24 hours'.")
    ] = None,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete failed events from the error stream.

    Example: `mesh discard Temperature --older-than '24 hours'`
    """
    if older_than is not None and (ids or all_):
        raise typer.BadParameter("can't be combined with IDs or --all", param_hint="--older-than")
    chosen = _chosen(ids, all_) if older_than is None else None
    older_than_s = None if older_than is None else _age_s(older_than)
    with CommandClient(at) as client:
        if chosen is None:
            done = client.discard_many(
                app, all=older_than_s is None or None, older_than_s=older_than_s
            )
            count = done["count"] if older_than is not None else len(done["ids"])
        else:
            done = {"app": app, "left": 0}
            for id_ in chosen:
                done = client.discard(app, id_)
            done["ids"], count = chosen, len(chosen)
    message = f"{counted(count, 'failed event')} discarded, {done['left']:,} left"
    show(output, done, message)


def _chosen(ids: list[int] | None, all_: bool) -> list[int] | None:
    """The chosen entries, None for all."""
    if bool(ids) == all_:
        raise typer.BadParameter("give IDs or --all", param_hint="ID")
    return ids or None


def _age_s(text: str) -> float:
    """Seconds of an age, whose unit has to be written."""
    try:
        if text.strip().isdecimal():
            raise ValueError("has a unit, such as '24 hours' or '30 min'")
        return float(value_of(Kind.DURATION, text)) / 1000
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--older-than") from error


def _event(text: str) -> JsonObject:
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"is no JSON: {error}", param_hint="--event") from error
    if not isinstance(values, dict):
        raise typer.BadParameter("is a JSON object", param_hint="--event")
    return values


def _short(entry: JsonObject) -> str:
    data = entry.get("data")
    text = data if isinstance(data, str) else repr(data)
    return text if len(text) <= 80 else text[:77] + "..."
