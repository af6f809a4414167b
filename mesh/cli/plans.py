"""``mesh plan`` and ``mesh diff``: the groups of an app, and the effect of another text."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

# typer reads the annotations when the command line is built.
from mesh.cli.options import FileArgument, OutputOption  # noqa: TC001
from mesh.cli.output import Output, pointing_at, read_source, show_error, show_json
from mesh.cli.variables import VarOption, given_variables
from mesh.errors import MeshError

if TYPE_CHECKING:
    from mesh.model.app import AppSpec

OldArgument = Annotated[
    Path, typer.Argument(help="The text that runs, '-' for standard input.", metavar="OLD")
]
NewArgument = Annotated[
    Path, typer.Argument(help="The text that would take its place.", metavar="NEW")
]


class Drawing(StrEnum):
    """``--output`` of a plan."""

    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    SVG = "svg"


DrawingOption = Annotated[
    Drawing,
    typer.Option("--output", "-o", help="How to print; dot is Graphviz's, svg a picture."),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="An app's text")(plan)
    app.command(rich_help_panel="An app's text")(diff)


def plan(file: FileArgument, var: VarOption = None, output: DrawingOption = Drawing.TEXT) -> None:
    """Show how an app would be cut: groups, instances, channels and subjects.

    Example: `mesh plan examples/temperature.siddhi`, or with `--output svg > plan.svg`
    """
    from mesh.language.substitution import substitute, variables_for
    from mesh.plan.build import plan as make
    from mesh.plan.explain import explain, to_values
    from mesh.plan.picture import to_dot, to_svg

    text = read_source(file)
    told = Output.JSON if output is Drawing.JSON else Output.TEXT
    with pointing_at(file, text, told):
        made = make(substitute(text, variables_for(text, given_variables(var))))
    match output:
        case Drawing.TEXT:
            sys.stdout.write(explain(made).rstrip("\n") + "\n")
        case Drawing.JSON:
            show_json(to_values(made))
        case Drawing.DOT:
            sys.stdout.write(to_dot(made.spec))
        case Drawing.SVG:
            sys.stdout.write(to_svg(made.spec))


def diff(
    old: OldArgument,
    new: NewArgument,
    var: VarOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say which groups would restart if NEW were deployed in the place of OLD, and why.

    Of each group that restarts it says which states can be kept, and it tells what would keep
    `mesh deploy` from changing the app while it runs. Exit code 0 when nothing would
    restart, 1 when something would, 2 when one of the two is no app.

    Example: `mesh diff app.siddhi app-2.siddhi`
    """
    from mesh.plan.changes import changes
    from mesh.plan.edits import obstacles
    from mesh.plan.explain_changes import changes_to_values, explain_changes

    given = given_variables(var)
    try:
        before, after = (_planned(file, given, output) for file in (old, new))
        found = changes(before, after)
    except MeshError as error:
        show_error(error)
        raise typer.Exit(2) from error
    except typer.Exit as error:
        raise typer.Exit(2) from error
    in_the_way = tuple(obstacles(before, after, found))
    if output is Output.JSON:
        show_json(changes_to_values(found, in_the_way))
    else:
        sys.stdout.write(explain_changes(found, in_the_way) + "\n")
    if not found.is_same:
        raise typer.Exit(1)


def _planned(file: Path, given: dict[str, str], output: Output) -> AppSpec:
    from mesh.language.substitution import substitute, variables_for
    from mesh.plan.build import plan as make

    text = read_source(file)
    with pointing_at(file, text, output):
        return make(substitute(text, variables_for(text, given))).spec
