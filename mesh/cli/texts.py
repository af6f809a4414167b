"""``mesh validate`` and ``format``: check and format texts without a cluster."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import (
    FilesArgument,
    NameOption,
    OutputOption,
    VarOption,
    parse_variables,
    stem_of,
)
from mesh.cli.output import Output, read_source, show_error, show_json, shown_path, writes
from mesh.errors import MeshError, all_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.client.checking import Checked
    from mesh.model.values import JsonObject

DeployableOption = Annotated[
    bool,
    typer.Option("--deployable", help="Report elements that this version does not run as errors."),
]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Write nothing; name the files that would change.")
]
DiffOption = Annotated[
    bool, typer.Option("--diff", help="Write nothing; show what would change.")
]  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="An app's text")(validate)
    app.command("format", rich_help_panel="An app's text")(format_files)


def validate(
    files: FilesArgument,
    var: VarOption = None,
    deployable: DeployableOption = False,
    name: NameOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check apps and show all errors of each, with position and reason.

    Valid SiddhiQL that this version does not run yet is a warning; with `--deployable` it
    is an error. The exit code is 1 if any file has an error.

    Example: `mesh validate examples/temperature.siddhi --var THRESHOLD=30`
    """
    from mesh.client.checking import Checked, check
    from mesh.language.substitution import variables_for

    _refuse_standard_input_twice(files)
    variables = parse_variables(var)
    answers: list[JsonObject] = []
    failed = 0
    for file in files:
        text = None
        try:
            text = read_source(file)
            checked = check(text, variables_for(text, variables), name or stem_of(file))
        except MeshError as error:
            checked = Checked(None, (), (error,), ())
        if deployable:
            checked = checked.with_warnings_as_errors()
        failed += not checked.is_valid
        if output is Output.JSON:
            answers.append(_to_values(file, checked))
        else:
            _show_checked(file, text, checked)
    if output is Output.JSON:
        show_json({"valid": not failed, "files": answers})
    elif failed and len(files) > 1:
        typer.echo(f"{failed} of {len(files)} files are not valid", err=True)
    if failed:
        raise typer.Exit(1)


def _to_values(file: Path, checked: Checked) -> JsonObject:
    return {
        "file": shown_path(file),
        "valid": checked.is_valid,
        "app": checked.app,
        "groups": list(checked.groups),
        "errors": [error.to_dict() for error in checked.errors],
        "warnings": [warning.to_dict() for warning in checked.warnings],
        "notes": list(checked.notes),
    }


def _show_checked(file: Path, text: str | None, checked: Checked) -> None:
    name = shown_path(file)
    for error in checked.errors:
        show_error(error, text, name)
    for warning in checked.warnings:
        typer.echo(f"warning: {warning.render(text, name)}", err=True)
    for note in checked.notes:
        typer.echo(f"warning: {name}: {note}", err=True)
    if not checked.is_valid:
        return
    but = ", but this version does not run all of it yet" if checked.warnings else ""
    typer.echo(f'{name}: app "{checked.app}" is valid{but}')


def format_files(
    files: FilesArgument, check: CheckOption = False, diff: DiffOption = False
) -> None:
    """Write apps in their canonical form, comments kept; `-` goes to standard output.

    `--check` and `--diff` write nothing; the exit code is 1 if a file would change.
    A file that is not SiddhiQL stays unchanged, and its errors are shown; the exit code is 1.

    Example: `mesh format --check examples/temperature.siddhi`
    """
    from mesh.language.layout import canonical

    _refuse_standard_input_twice(files)
    failed = False
    for file in files:
        name = shown_path(file)
        text = None
        try:
            text = read_source(file)
            formatted = canonical(text)
            if check or diff:
                changes = formatted != text
                failed |= changes
                if changes and check:
                    typer.echo(f"{name} would change", err=diff)
                if changes and diff:
                    sys.stdout.write(_difference(text, formatted, name))
            elif str(file) == "-":
                # In UTF-8, unchanged.
                sys.stdout.buffer.write(formatted.encode("utf-8"))
                sys.stdout.buffer.flush()
            elif formatted != text:
                with writes(file):
                    file.write_bytes(formatted.encode("utf-8"))
                typer.echo(f"{name} formatted")
        except MeshError as error:
            failed = True
            for one in all_errors(error):
                show_error(one, text, name)
    if failed:
        raise typer.Exit(1)


def _difference(text: str, formatted: str, name: str) -> str:
    lines = difflib.unified_diff(
        text.splitlines(), formatted.splitlines(), name, f"{name} (formatted)", lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def _refuse_standard_input_twice(files: Sequence[Path]) -> None:
    if sum(str(file) == "-" for file in files) > 1:
        raise typer.BadParameter("'-' is given twice", param_hint="FILE...")
