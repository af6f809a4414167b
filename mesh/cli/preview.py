"""``mesh preview``: the outputs of a text on events, before a deploy."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
import typer

from mesh.cli.options import (
    FileArgument,
    NameOption,
    OutputOption,
    VarOption,
    app_token,
    filled,
    parse_variables,
    takes_cluster,
)
from mesh.cli.output import Output, counted, pointing_at, read_source, show, shown_path, writes
from mesh.processes.progress import working

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.client import ClientContext
    from mesh.model.values import JsonMapping, JsonObject

#: Time for a preview on this machine, seconds: native loops may have to be compiled.
_HERE_S: Final = 120.0
_SIGNS: Final = {"new": "+", "gone": "-"}


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="An app's text")(preview)


@takes_cluster
def preview(
    file: FileArgument,
    events: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Events, as those of `mesh test`."),
    ] = None,
    streams: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="STREAM",
            help="Stored events of the cluster: of an input stream of the app of this name, or "
            "that its source reads; STREAM=APP.OTHER for those of another app. Repeatable.",
        ),
    ] = None,
    last: Annotated[
        int, typer.Option(min=1, max=10_000, help="With --from: most events of each stream.")
    ] = 1000,
    since: Annotated[
        str, typer.Option(metavar="PLACE", help="With --from: the first sequence, or a time.")
    ] = "",
    until: Annotated[
        str, typer.Option(metavar="PLACE", help="With --from: the sequence or time after the end.")
    ] = "",
    against: Annotated[
        str,
        typer.Option(
            metavar="APP", help="A running app whose outputs are compared.", callback=app_token
        ),
    ] = "",
    keep_as_test: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the YAML of `mesh test` with these events."),
    ] = None,
    var: VarOption = None,
    name: NameOption = None,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the outputs of a text on events, without a deploy.

    Nothing is published, no store is written and no sink is called. Each output is shown with the
    event that caused it. The state begins empty.

    With `--from` or `--against` a manager plays the events, otherwise this machine.  With
    `--against` the exit code is 1 if any output differs.

    Example: `mesh preview shop.siddhi --events shop.events.jsonl`

    Example: `mesh preview shop.siddhi --from Orders --last 1000 --against Shop`
    """
    if events is None and not streams:
        raise typer.BadParameter("give --events FILE or --from STREAM")
    text = read_source(file)
    lines = read_source(events) if events is not None else ""
    with pointing_at(file, text, output):
        text = filled(text, parse_variables(var), file, name)
        keep = keep_as_test is not None
        if streams or against:
            options = {"streams": streams or [], "since": since, "until": until, "against": against}
            answer = _there(text, at, events=lines, last=last, keep=keep, **options)
        else:
            answer = _here(text, lines, keep=keep)
    if keep_as_test is not None:
        with writes(keep_as_test):
            keep_as_test.write_text(answer.pop("test"), encoding="utf-8")
    show(output, answer, "\n".join(lines_of(answer)))
    if keep_as_test is not None and output is Output.TEXT:
        typer.echo(f"wrote {shown_path(keep_as_test)}")
    if answer["against"] is not None and answer["against"]["differs"]:
        raise typer.Exit(1)


def _here(text: str, lines: str, *, keep: bool) -> JsonObject:
    """The outputs, from a process of this machine."""
    from mesh.plan.build import plan
    from mesh.processes.bounded_process import BoundedProcess
    from mesh.testing.preview import exceeded

    # The operators alone would run an app that can't be deployed.
    plan(text)
    process = BoundedProcess("mesh.testing.preview", exceeded)
    try:
        with working("the events are played"):
            function = "mesh.testing.preview:answer"
            answer: JsonObject = process.call(_HERE_S, function, text, lines, (), None, keep)
            return answer
    finally:
        process.stop()


def _there(text: str, cluster: ClientContext, **options: Any) -> JsonObject:
    from mesh.cli.options import CommandClient

    with working("a manager plays the events"), CommandClient(cluster) as client:
        return client.preview(text, **options)


def lines_of(answer: JsonMapping) -> Iterator[str]:
    """The answer as text."""
    inputs, outputs, against = answer["inputs"], answer["outputs"], answer["against"]
    if against is None:
        yield from _caused_lines(inputs, outputs, answer["failed"])
    else:
        yield from _compared_lines(against)
    sent = sum(bool(one["stream"]) for one in inputs)
    failed = answer["failed_count"]
    yield (
        f'app "{answer["app"]}": {counted(sent, "event")}, {len(outputs):,} out'
        + (f", {failed:,} failed" if failed else "")
    )
    if answer["next_timer"] is not None:
        yield f"next timer: {_time(answer['next_timer'])}"
    for note in answer["notes"]:
        yield f"note: {note}"


def _caused_lines(
    inputs: Sequence[JsonMapping],
    outputs: Sequence[JsonMapping],
    failed: Sequence[JsonMapping],
) -> Iterator[str]:
    """Each event with what it caused; what timers emitted is before it."""
    causes: dict[int, list[str]] = {}
    timers: dict[int, list[str]] = {}
    for one in outputs:
        to = timers if one["timer"] else causes
        to.setdefault(one["input"], []).append(f"     {_event(one)}")
    for one in failed:
        line = f'     query "{one["query"]}" fails: {one["reason"]}'
        causes.setdefault(one["input"], []).append(line)
    for number, one in enumerate(inputs, 1):
        if number in timers:
            yield "   timers"
            yield from timers[number]
        if one["stream"]:
            yield f"{number:3} {_event(one)}"
        yield from causes.get(number, ())


def _compared_lines(against: JsonMapping) -> Iterator[str]:
    """The rows that differ, by stream."""
    for stream in against["streams"]:
        yield (
            f"{stream['stream']}: {stream['same']:,} same, {stream['new']:,} new, "
            f"{stream['gone']:,} gone, {stream['changed']:,} changed"
        )
        for row in stream["rows"]:
            if row["kind"] == "changed":
                yield f"  - {_event(row['running'])}"
                yield f"  + {_event(row['draft'])}"
            elif row["kind"] != "same":
                yield f"  {_SIGNS[row['kind']]} {_event(row['draft'] or row['running'])}"


def _event(one: JsonMapping) -> str:
    return f"{_time(one['time'])} {one['stream']} {orjson.dumps(one['event']).decode()}"


def _time(time_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
