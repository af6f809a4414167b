"""``mesh backfill``: an app that begins with the states of its past."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from mesh.cli.options import (
    CommandClient,
    NameOption,
    OutputOption,
    VarOption,
    filled,
    parse_variables,
    takes_cluster,
    with_status,
)
from mesh.cli.output import Output, because, pointing_at, read_source, show
from mesh.cli.timeline import PANEL
from mesh.errors import MeshError
from mesh.model.history import HistoryInput
from mesh.processes.progress import working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from mesh.client import ClientContext
    from mesh.model.values import JsonObject
    from mesh.processes.progress import Work

R = TypeVar("R")

#: Interval of the lines of progress, seconds.
_TELL_S: Final = 1.0
#: Attempts to run a history, and the time that a manager has to come back, seconds.
_TRIES: Final = 5
_BACK_S: Final = 60.0

BackfillOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backfill", metavar="STREAM=PATH",
        help="Past events of an input stream that a new app has seen when it starts; see "
        "`mesh backfill`. Repeatable.",
    ),
]  # fmt: skip
TimeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--time", metavar="COLUMN",
        help="Column with the times of past events; STREAM=COLUMN for one stream of several. "
        "Messages of NATS have the times of live events by default.",
    ),
]  # fmt: skip
UntilOption = Annotated[
    list[str] | None,
    typer.Option(
        "--until", metavar="PLACE",
        help="End of past events in the live stream: the last sequence that they include, or a "
        "time before which they are read; STREAM=PLACE for one stream of several. By default they "
        "end before its first message.",
    ),
]  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=PANEL)(backfill)


@takes_cluster
def backfill(
    file: Annotated[Path, typer.Argument(help="SiddhiQL of a new app.", metavar="FILE")],
    pairs: Annotated[
        list[str],
        typer.Argument(
            help="An input stream, and its past events: a Parquet or CSV file, or a directory of "
            "them, in the setting manager.history_dir; or a table, as in "
            "postgresql://host/name#table; or a JetStream stream, as in nats:OLD_ORDERS. May be "
            "repeated.",
            metavar="STREAM PATH",
        ),
    ],
    column: TimeOption = None,
    until: UntilOption = None,
    timeout: Annotated[
        float,
        typer.Option(help="Seconds to wait until it runs after its history; 0 does not wait."),
    ] = 60.0,
    var: VarOption = None,
    name: NameOption = None,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Deploy an app that has seen the past: events of its streams, up to exact places.

    Past events are run through the app's groups as a batch, without channels.  The states that they
    give are those from which the app starts; it reads the live streams on after the past events,
    without a gap or an overlap.  Outputs of the past are not published.

    `mesh deploy --backfill STREAM=PATH` does the same.

    Example: `mesh backfill shop.siddhi Orders orders/2025 --time ordered_at`
    """
    if len(pairs) % 2:
        raise typer.BadParameter("each stream has a path after it", param_hint="STREAM PATH")
    inputs = inputs_of(zip(pairs[::2], pairs[1::2], strict=True), column or (), until or ())
    text = read_source(file)
    with CommandClient(at) as client, pointing_at(file, text, output):
        text = filled(text, parse_variables(var), file, name)
        done = backfill_and_wait(client, at, text, inputs, timeout)
    show(output, done, describe(done))
    if not done.get("running", True):
        raise typer.Exit(1)


def inputs_of_deploy(
    past: Sequence[str] | None,
    columns: Sequence[str] | None,
    ends: Sequence[str] | None,
    *,
    is_new: bool,
) -> list[HistoryInput]:
    """The past events that ``mesh deploy --backfill`` names; ``is_new``: it is for one new app."""
    pairs = []
    for one in past or ():
        stream, _, path = one.partition("=")
        if not path:
            raise typer.BadParameter("is STREAM=PATH", param_hint="--backfill")
        pairs.append((stream, path))
    if pairs and not is_new:
        raise typer.BadParameter(
            "is for one new app: without --from, --replace and --reset", param_hint="--backfill"
        )
    return inputs_of(pairs, columns or (), ends or ())


def inputs_of(
    pairs: Iterable[tuple[str, str]], columns: Sequence[str], ends: Sequence[str]
) -> list[HistoryInput]:
    """The past events of streams, by stream and path, with ``--time`` and ``--until``."""
    from mesh.plan.history_addresses import is_stream

    paths = dict(pairs)
    times, untils = _by_stream("--time", columns, paths), _by_stream("--until", ends, paths)
    for stream, path in paths.items():
        if stream not in times and not is_stream(path):
            raise typer.BadParameter(f"stream {stream} has none", param_hint="--time")
    if len(paths) > 1 and any(one.isdecimal() for one in ends):
        raise typer.BadParameter(
            "a sequence is that of one stream: STREAM=SEQUENCE", param_hint="--until"
        )
    return [HistoryInput(s, path, times.get(s, ""), untils.get(s)) for s, path in paths.items()]


def _by_stream(option: str, values: Sequence[str], paths: dict[str, str]) -> dict[str, str]:
    result: dict[str, str] = {}
    for value in values:
        stream, equals, text = value.partition("=")
        if equals and stream not in paths:
            raise typer.BadParameter(f'stream "{stream}" has no past events', param_hint=option)
        if not equals:
            result = {**dict.fromkeys(paths, value), **result}
        else:
            result[stream] = text
    return result


def backfill_and_wait(
    client: CommandClient,
    at: ClientContext,
    text: str,
    inputs: Sequence[HistoryInput],
    timeout_s: float,
) -> JsonObject:
    """Deploy an app after its history, with progress on standard error; the outcome."""
    deploy = partial(
        client.backfill,
        text,
        stream=[one.stream for one in inputs],
        path=[one.path for one in inputs],
        time=[one.time for one in inputs],
        until=[one.until or "" for one in inputs],
    )
    done = followed(at, text, deploy)
    return with_status(client, done, done["app"], timeout_s)


def followed(at: ClientContext, text: str, ask: Callable[[], R]) -> R:
    """The answer to a deploy with a history, with its progress on standard error meanwhile.

    When its manager ends in the middle, ``ask`` is called again: the next manager continues from
    the last checkpoint.
    """
    from mesh.language.parser import parse_app
    from mesh.plan.groups import app_name

    name = app_name(parse_app(text))
    past = working(f'app "{name}" reads its past')
    with CommandClient(at) as other, ThreadPoolExecutor(1) as runner, past as work:
        for _ in range(_TRIES):
            future = runner.submit(ask)
            is_begun = _watch(future, other, name, work)
            if not (is_begun and _is_away(future) and _is_back(other)):
                break
            # An event, that each line of progress would hide.
            typer.echo(f'app "{name}": its manager has ended; another one continues', err=True)
        return future.result()


def _watch(future: Future[R], other: CommandClient, name: str, work: Work) -> bool:
    """Show the progress until there is an answer; whether there was any."""
    is_begun = False
    while not wait([future], _TELL_S).done:
        with contextlib.suppress(MeshError):
            reason = other.status(name).get("reason") or ""
            is_begun |= bool(reason)
            work.tell(f'app "{name}": {reason}' if reason else "")
    return is_begun


def _is_away(future: Future[R]) -> bool:
    error = future.exception()
    return isinstance(error, MeshError) and error.code == "MESH-U112"


def _is_back(other: CommandClient) -> bool:
    """Wait for a manager that answers; whether there is one in time."""
    ends_s = time.monotonic() + _BACK_S
    while time.monotonic() < ends_s:
        if other.is_up():
            return True
        time.sleep(_TELL_S)
    return False


def describe(done: JsonObject) -> str:
    """The outcome in sentences."""
    resumed = done.get("resumed", 0)
    rate = (done["rows"] - resumed) / max(done["seconds"], 1e-3)
    seen = f'app "{done["app"]}" has seen {done["rows"]:,} rows of {", ".join(done["streams"])}'
    emitted = f"{done['emitted']:,} events that its groups made of them are not published"
    lines = [f"{seen} in {done['seconds']:.1f} s ({rate:,.0f} rows/s); {emitted}"]
    if resumed:
        lines.append(f"  {resumed:,} of these rows were run before it was interrupted")
    if done["later"]:
        lines.append(f"  {done['later']:,} rows were later, and are left to the live stream")
    if done["unreadable"]:
        lines.append(f"  {done['unreadable']:,} events could not be read, and are left out")
    if done["failed"]:
        lines.append(f"  a query failed on {done['failed']:,} events")
    lines += [f"  {name} is read on after {last}" for name, last in sorted(done["cuts"].items())]
    status = done.get("status")
    if status is not None:
        lines.append(f"  it is {status['state']}{because(status)}")
    return "\n".join(lines)
