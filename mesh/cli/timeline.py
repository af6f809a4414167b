"""``mesh backup``, ``restore``, ``fork``, ``compare``, ``promote`` and ``why``: an app's past."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from mesh.cli.options import (
    AppArgument,
    CommandClient,
    OutputOption,
    VarOption,
    app_token,
    filled,
    parse_variables,
    takes_cluster,
    with_status,
)
from mesh.cli.output import Output, because, pointing_at, read_source, show, show_rows
from mesh.processes.progress import working

if TYPE_CHECKING:
    from mesh.client import ClientContext
    from mesh.model.values import JsonObject
    from mesh.processes.progress import Work


_PANEL = "Apps of a cluster"

PANEL = "An app's past"
#: Pause between two looks at the instances, longer than the interval of their reports; seconds.
_LOOK_S = 1.5


@takes_cluster
def backup(app: AppArgument, *, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """Copy an app's state with its positions; the app continues to run.

    Example: `mesh backup Temperature`
    """
    with CommandClient(at) as client:
        answer = client.backup(app)
    size = f"{answer['snapshots']} snapshots, {answer['bytes'] / 1e6:.1f} MB"
    show(output, answer, f'app "{app}" is backed up as revision {answer["revision"]}: {size}')


@takes_cluster
def backups(
    app: AppArgument,
    delete: Annotated[
        str | None, typer.Option(help="Delete this revision, or 'all' of them.")
    ] = None,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the backups of an app, oldest first, also when it is undeployed; or delete some.

    Example: `mesh backups Temperature`
    """
    with CommandClient(at) as client:
        if delete is not None:
            is_all = delete == "all"
            done = client.delete_backups(app) if is_all else client.delete_backup(app, delete)
            show(output, done, f"{done['deleted']} deleted")
            return
        entries = client.backups(app)
    rows = [
        (
            one["revision"],
            datetime.fromtimestamp(one["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
            one["by"],
            one["snapshots"],
            f"{one['bytes'] / 1e6:.1f}",
        )
        for one in entries
    ]
    show_rows(output, entries, ("revision", "made at", "by", "snapshots", "MB"), rows)


@takes_cluster
def restore(
    app: AppArgument,
    revision: Annotated[str | None, typer.Option(help="The backup; the newest by default.")] = None,
    before: Annotated[
        str | None,
        typer.Option("--at", help="The newest backup made by this time, as in 2026-11-21T20:30Z."),
    ] = None,
    other: Annotated[
        str | None,
        typer.Option(
            "--as", help="Start a new app of this name with the state.", callback=app_token
        ),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay/--no-replay",
            help="Read later events again and publish their outputs again.",
        ),
    ] = True,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Restore the state of a backup: the app stops, gets the state, and reads again from there.

    Outputs since the backup are published a second time. A new app (`--as`) has its own channels,
    which are empty.

    Example: `mesh restore Temperature --at 2026-11-21T20:30Z`
    """
    with CommandClient(at) as client:
        done = client.restore(app, revision=revision, before=before, other=other, replay=replay)
    message = (
        f"{done['behind']} messages are read again" if done["replays"] else "nothing is replayed"
    )
    where = f'app "{done["app"]}" continues from revision {done["revision"]}'
    show(output, done, f"{where}: {message}")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (backup, backups, restore):
        app.command(rich_help_panel=_PANEL)(command)
    for command in (fork, compare, promote, why):
        app.command(rich_help_panel=PANEL)(command)


@takes_cluster
def compare(
    app: AppArgument,
    other: Annotated[
        str, typer.Argument(metavar="FORK", help="Name of its fork.", callback=app_token)
    ],
    stream: Annotated[
        list[str] | None,
        typer.Option(help="Stream to compare; all that both write by default; repeatable."),
    ] = None,
    key: Annotated[
        str, typer.Option(metavar="NAMES", help="Attributes that identify a row, with commas.")
    ] = "",
    ignore: Annotated[
        str, typer.Option(metavar="NAMES", help="Attributes that may differ, with commas.")
    ] = "",
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait until both have read their input.")
    ] = 60.0,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Compare the outputs of an app and its fork: rows that are new, gone or changed.

    The first difference is shown with the input that caused it. The exit code is 1 if there is any.

    Example: `mesh compare Shop ShopNext --stream DearOrders`
    """
    with CommandClient(at) as client:
        with working(f'"{app}" and "{other}" read their input', at_most_s=timeout) as work:
            rested = _wait_rest(client, (app, other), timeout, work)
        with working(f'the outputs of "{app}" and "{other}" are compared'):
            comparison = client.compare(
                app, other, stream=stream or [], key=_names(key), ignore=_names(ignore)
            )
        comparison["at_rest"] = rested
    show(output, comparison, "\n".join(compared_lines(comparison)))
    if comparison["differs"]:
        raise typer.Exit(1)


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


@takes_cluster
def promote(
    other: Annotated[
        str, typer.Argument(metavar="FORK", help="Name of the fork.", callback=app_token)
    ],
    replaces: Annotated[
        str | None,
        typer.Option(metavar="APP", help="The app that it must be a fork of.", callback=app_token),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait until the app runs; 0 does not wait.")
    ] = 60.0,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Give the app of a fork the fork's text, at an exact sequence, and remove the fork.

    Readers of the app's outputs miss nothing and see nothing twice. A fork whose states would
    differ from those of the app is refused.

    Example: `mesh promote ShopNext --replaces Shop`
    """
    with CommandClient(at) as client:
        done = client.promote(other, replaces=replaces)
        done = with_status(client, done, done["app"], timeout)
    state = f" and is {done['status']['state']}" if "status" in done else ""
    message = f'app "{done["app"]}" has the text of "{other}"{state}; the fork is removed'
    show(output, done, message)
    if not done.get("running", True):
        raise typer.Exit(1)


def _wait_rest(client: CommandClient, apps: tuple[str, ...], timeout_s: float, work: Work) -> bool:
    """Wait until two looks in a row find nothing to read; whether that was in time."""
    deadline_s = time.monotonic() + timeout_s
    quiet: list[Any] = []
    first = 0
    while True:
        instances = [i for app in apps for i in client.status(app)["instances"]]
        behind = sum(i.get("behind") or 0 for i in instances)
        first = max(first, behind)
        work.tell(done=first - behind, total=first)
        counts = [(i.get("events_in"), i.get("events_out")) for i in instances]
        if not behind and counts == quiet:
            return True
        quiet = [] if behind else counts
        if time.monotonic() + _LOOK_S > deadline_s:
            return False
        time.sleep(_LOOK_S)


def compared_lines(comparison: JsonObject) -> list[str]:
    """A comparison in sentences."""
    lines = [] if comparison["at_rest"] else ["one of the apps still reads its input"]
    for one in comparison["streams"]:
        counts = ", ".join(f"{one[name]} {name}" for name in ("same", "new", "gone", "changed"))
        earlier = f" ({one['earlier']} from before the fork)" if one["earlier"] else ""
        lines.append(f"{one['stream']}: {counts}{earlier}")
    first = comparison["first"]
    if first is None:
        return [*lines, "no difference"]
    lines.append(f"first difference, in {first['stream']}: {first['kind']}")
    for name, app in (("app", comparison["app"]), ("fork", comparison["fork"])):
        if first[name] is not None:
            event = orjson.dumps(first[name]["event"]).decode()
            lines.append(f"  {app} {first[name]['sequence']}: {event}")
    for one in first["inputs"]:
        event = orjson.dumps(one["event"]).decode()
        lines.append(f"  because of {one['js_stream']} {one['sequence']}: {event}")
    return [*lines, f"  {first['note']}"] if first["note"] else lines


@takes_cluster
def why(
    app: AppArgument,
    stream: Annotated[str, typer.Argument(help="Stream of the app.", metavar="STREAM")],
    sequence: Annotated[
        int, typer.Argument(min=1, help="Sequence of the message in the stream's channel.")
    ],
    index: Annotated[
        int, typer.Option(min=0, help="Place of the event in its message, from 0.")
    ] = 0,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the inputs of an event: those without which it would be another one, or none.

    They are found by running the groups again over the log, back to the events that came from
    outside.

    Example: `mesh why Shop DearOrders 17`
    """
    with CommandClient(at) as client:
        lineage = client.why(app, stream, sequence, index=index)
    show(output, lineage, "\n".join(lineage_lines(lineage)))


def lineage_lines(cause: JsonObject, depth: int = 0) -> list[str]:
    """A lineage as an indented list, the inputs of an event below it."""
    at = datetime.fromtimestamp(cause["time_ms"] / 1000, UTC)
    shown = f"{at:%Y-%m-%d %H:%M:%S}.{cause['time_ms'] % 1000:03d}"
    place = f"{cause['stream']} {cause['sequence']}"
    place += f".{cause['index']}" if cause["index"] else ""
    by = f"  by {cause['group']}" if cause["group"] else ""
    event = orjson.dumps(cause["event"]).decode()
    lines = [f"{'  ' * depth}{place}  {shown}  {event}{by}"]
    for one in cause["inputs"]:
        lines += lineage_lines(one, depth + 1)
    below = "  " * (depth + 1)
    if cause["more"]:
        lines.append(f"{below}and {cause['more']} more")
    if cause["note"]:
        lines.append(f"{below}{cause['note']}")
    return lines


@takes_cluster
def fork(
    app: AppArgument,
    other: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Name of the fork.", callback=app_token)
    ],
    text: Annotated[
        Path | None,
        typer.Option("--text", metavar="FILE", help="Its SiddhiQL; that of the app by default."),
    ] = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="start, a sequence, a time, backup (the newest) or a backup's revision.",
        ),
    ] = "start",
    until: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Last sequence to read, or a time; no end by default."),
    ] = None,
    sinks: Annotated[
        bool, typer.Option("--sinks/--no-sinks", help="Whether its sinks send to the outside.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait until it runs; 0 does not wait.")
    ] = 60.0,
    var: VarOption = None,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Start another app over the input of an app, from a place in the past.

    The fork reads the app's input streams, which stay as they are, and publishes to subjects of its
    own. It begins with the app's state of that place where a backup has it and the text fits it,
    otherwise with the first message of the log; the answer says which.

    Example: `mesh fork Shop --as ShopNext --text next.siddhi`
    """
    source = "" if text is None else read_source(text)
    shown = contextlib.nullcontext() if text is None else pointing_at(text, source, output)
    with CommandClient(at) as client:
        with shown:
            new_text = None if text is None else filled(source, parse_variables(var), text)
            done = client.fork(app, other, new_text, begin=begin, until=until, sinks=sinks)
        done = with_status(client, done, other, timeout)
    show(output, done, describe_fork(done, begin))
    if not done.get("running", True):
        raise typer.Exit(1)


def describe_fork(done: JsonObject, begin: str) -> str:
    """The outcome of a fork in sentences."""
    place = f"the state of backup {done['backup']}" if done["backup"] else f"{begin}, no state"
    lines = [f'app "{done["app"]}" is a fork of "{done["of"]}": it begins with {place}']
    if done["copied"]:
        lines.append(f"  {done['copied']} messages between its groups were copied")
    lines += [f"  {note}" for note in done["notes"]]
    status = done.get("status")
    if status is not None:
        lines.append(f"  it is {status['state']}{because(status)}")
    return "\n".join(lines)
