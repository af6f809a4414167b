"""``mesh plan`` and ``mesh diff``: groups and channels of a text; changes by another text."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

# typer reads the annotations when the command line is built.
from mesh.cli.options import (
    FileArgument,
    NameOption,
    OutputOption,
    VarOption,
    filled,
    parse_variables,
    stem_of,
    takes_cluster,
)
from mesh.cli.output import (
    Output,
    counted,
    pointing_at,
    read_source,
    show,
    show_error,
    show_json,
    show_table,
)
from mesh.errors import MeshError

if TYPE_CHECKING:
    from mesh.client import ClientContext
    from mesh.model.app import AppSpec
    from mesh.model.values import JsonObject

OldArgument = Annotated[
    Path, typer.Argument(help="The text that runs, '-' for standard input.", metavar="OLD")
]
NewArgument = Annotated[Path, typer.Argument(help="The text that would replace it.", metavar="NEW")]


class PlanOutput(StrEnum):
    """``--output`` of a plan."""

    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    SVG = "svg"


DrawingOption = Annotated[
    PlanOutput,
    typer.Option("--output", "-o", help="Output format; dot is Graphviz's, svg a picture."),
]

AtRateOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RATE",
        help="Events a second of each input stream, or STREAM=RATE for one; shows what is needed.",
    ),
]
KeysOption = Annotated[
    float, typer.Option(help="With --at-rate: different values of each key, as in 1e6.")
]
EventsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="With --at-rate: events as those of `mesh test`, not random ones."
    ),
]
CoresOption = Annotated[
    int, typer.Option(min=0, help="With --at-rate: cores of a worker; 0 for this machine's.")
]
OnClusterOption = Annotated[
    bool,
    typer.Option(
        "--on-cluster",
        help="Show what holds through which failures on this cluster; with --at-rate: a manager "
        "measures, and uses the running app's rates.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="An app's text")(plan)
    app.command(rich_help_panel="An app's text")(diff)


@takes_cluster
def plan(
    file: FileArgument,
    at_rate: AtRateOption = None,
    keys: KeysOption = 1000,
    events: EventsOption = None,
    cores: CoresOption = 0,
    on_cluster: OnClusterOption = False,
    var: VarOption = None,
    name: NameOption = None,
    *,
    at: ClientContext,
    output: DrawingOption = PlanOutput.TEXT,
) -> None:
    """Show the plan of an app: groups, instances, channels and subjects.

    With `--at-rate` it shows what the app needs for so many events a second: instances, workers,
    memory of states, and which group saturates first.  The groups are measured on random events,
    here in some seconds, with a NATS server of their own.

    With `--on-cluster` it shows which guarantees would hold there, for each channel, source and
    sink.

    Example: `mesh plan examples/temperature.siddhi`, or with `--output svg > plan.svg`

    Example: `mesh plan shop.siddhi --at-rate 50000 --keys 1e6`
    """
    from mesh.plan.build import plan as make
    from mesh.plan.explain import explain, to_values
    from mesh.plan.picture import to_dot, to_svg

    text = read_source(file)
    shown = Output.JSON if output is PlanOutput.JSON else Output.TEXT
    with pointing_at(file, text, shown):
        text = filled(text, parse_variables(var), file, name)
        if at_rate:
            _what_if(text, at_rate, keys, events, cores, at if on_cluster else None, output)
            return
        if on_cluster:
            _guarantees(text, at, output)
            return
        app_plan = make(text)
    match output:
        case PlanOutput.TEXT:
            sys.stdout.write(explain(app_plan).rstrip("\n") + "\n")
        case PlanOutput.JSON:
            show_json(to_values(app_plan))
        case PlanOutput.DOT:
            sys.stdout.write(to_dot(app_plan.spec))
        case PlanOutput.SVG:
            sys.stdout.write(to_svg(app_plan.spec))


def _guarantees(text: str, cluster: ClientContext, output: PlanOutput) -> None:
    from mesh.cli.options import CommandClient

    if output in (PlanOutput.DOT, PlanOutput.SVG):
        raise typer.BadParameter("--on-cluster has no picture: --output text or json")
    with CommandClient(cluster) as client:
        answer = client.plan(text)
    if output is PlanOutput.JSON:
        show_json(answer["guarantees"])
    else:
        _show_guarantees(answer["guarantees"] or {})


def _show_guarantees(guarantees: JsonObject) -> None:
    """Print a row for each place, then reasons and remedies."""
    rows = guarantees["rows"]
    failures = list(dict.fromkeys(row["failure"] for row in rows))
    places: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        places.setdefault((row["place"], row["name"]), {})[row["failure"]] = row["holds"]
    show_table(
        ("place", "name", *failures),
        [(*place, *map(held.get, failures)) for place, held in places.items()],
    )
    synced_s = guarantees["sync_interval_s"]
    shown = "not stated, 2 minutes assumed" if synced_s is None else f"{synced_s:g} s"
    servers = counted(len(guarantees["servers"]) or 1, "server")
    replicas = guarantees["replicas"]
    typer.echo(f"{servers} seen, channels.replicas: {replicas}, sync_interval: {shown}")
    for line in guarantees["summary"]:
        typer.echo(f"- {line}")


def _what_if(
    text: str,
    at_rate: list[str],
    keys: float,
    events: Path | None,
    cores: int,
    cluster: ClientContext | None,
    output: PlanOutput,
) -> None:
    from mesh.cli.what_if import measured_here, measured_there, show

    if output in (PlanOutput.DOT, PlanOutput.SVG):
        raise typer.BadParameter("--at-rate has no picture: --output text or json")
    if cluster is not None and events is not None:
        raise typer.BadParameter("a manager measures random events: leave out --events")
    if cluster is None:
        answer = measured_here(text, at_rate, keys, events, cores)
    else:
        answer = measured_there(text, at_rate, keys, cores, cluster)
    if output is PlanOutput.JSON:
        show_json(answer)
    else:
        show(answer)


def diff(
    old: OldArgument,
    new: NewArgument,
    var: VarOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show which groups would restart if NEW replaced OLD, and why.

    For each group that restarts it shows which states can be kept, and what would prevent
    `mesh deploy` from changing the app while it runs. Exit code 0 if no group would
    restart, 1 if one would, 2 if one of the texts is no app.

    Example: `mesh diff app.siddhi app-2.siddhi`
    """
    from mesh.plan.changes import changes_between
    from mesh.plan.edits import obstacles
    from mesh.plan.explain import changes_to_values, explain_changes

    variables = parse_variables(var)
    try:
        # Without names, they are two versions of one app.
        name = stem_of(old)
        before, after = (_planned(file, variables, output, name) for file in (old, new))
        changes = changes_between(before, after)
    except MeshError as error:
        show_error(error)
        raise typer.Exit(2) from error
    except typer.Exit as error:
        raise typer.Exit(2) from error
    in_the_way = tuple(obstacles(before, after, changes))
    shown = explain_changes(changes, in_the_way)
    show(output, changes_to_values(changes, in_the_way), shown)
    if not changes.is_same:
        raise typer.Exit(1)


def _planned(file: Path, variables: dict[str, str], output: Output, name: str) -> AppSpec:
    from mesh.plan.build import plan as make

    text = read_source(file)
    with pointing_at(file, text, output):
        return make(filled(text, variables, file, name)).spec
