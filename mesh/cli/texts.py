"""``mesh validate`` and ``mesh plan``: what can be said of an app without a cluster."""

from __future__ import annotations

import sys

import typer

# typer reads the annotations when the command line is built.
from mesh.cli.options import FileArgument, OutputOption  # noqa: TC001
from mesh.cli.output import Output, pointing_at, read_source, show_json


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="An app's text")(validate)
    app.command(rich_help_panel="An app's text")(plan)


def validate(file: FileArgument, output: OutputOption = Output.TEXT) -> None:
    """Say whether an app can be deployed, and if not, where and why.

    Example: `mesh validate examples/temperature.siddhi`
    """
    from mesh.plan.build import plan as make

    text = read_source(file)
    with pointing_at(file, text, output):
        spec = make(text).spec
    if output is Output.JSON:
        show_json({"file": str(file), "app": spec.name, "groups": [g.name for g in spec.groups]})
    else:
        typer.echo(f'{file}: app "{spec.name}" is valid')


def plan(file: FileArgument, output: OutputOption = Output.TEXT) -> None:
    """Show how an app would be cut: groups, instances, channels and subjects.

    Example: `mesh plan examples/temperature.siddhi`
    """
    from mesh.plan.build import plan as make
    from mesh.plan.explain import explain, to_values

    text = read_source(file)
    with pointing_at(file, text, output):
        made = make(text)
    if output is Output.JSON:
        show_json(to_values(made))
    else:
        sys.stdout.write(explain(made).rstrip("\n") + "\n")
