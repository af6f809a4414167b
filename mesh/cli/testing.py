"""``mesh test``: play the events of an app's test in process, and compare its output.

``mesh init``: a small project with an app, its test and a README.
"""

from __future__ import annotations

from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mesh.cli.options import FilesArgument, OutputOption, VarOption, filled, parse_variables
from mesh.cli.output import Output, pointing_at, read_source, show_json, shown_path
from mesh.errors import MeshError
from mesh.processes.progress import working

if TYPE_CHECKING:
    from mesh.model.values import JsonObject


#: Name of the template's app, and of its files in lower case.
_TEMPLATE = "Starter"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("test", rich_help_panel="An app's text")(play_tests)
    app.command("init", rich_help_panel="An app's text")(init)


def _played_now(file: Path) -> str:
    """The progress of the test of a file, which may compile."""
    # It takes as long to import as the rest of the command.
    from mesh.operators import loop_cache

    text = f"{shown_path(file)}: the test plays"
    if loop_cache.is_compiled():
        return text
    count = sum(1 for _ in loop_cache.CACHE.rglob("*.nbc"))
    return f"{text}, and compiles native loops, once on this machine: {count} so far"


def play_tests(
    files: FilesArgument,
    rewrite: Annotated[
        bool,
        typer.Option("--rewrite", help="Write the output as the expected one; read the diff."),
    ] = False,
    var: VarOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Play the test of each app, without a cluster, and compare what it emits.

    APP.siddhi has its input in APP.events.jsonl and its output in APP.expected.jsonl. FILE.yaml has
    cases with payloads for sources and expected payloads of sinks. The exit code is 1 if an app
    emits anything else.

    Example: `mesh test examples/orders.siddhi`
    """
    variables = parse_variables(var)
    results: list[JsonObject] = []
    for file in files:
        with working(partial(_played_now, file)):
            if file.suffix in (".yaml", ".yml"):
                results += _cases(file, variables, output)
            else:
                results.append(_played(file, variables, output, rewrite=rewrite))
    if output is Output.JSON:
        show_json(results)
    if any(one["differences"] for one in results):
        raise typer.Exit(1)


def _cases(file: Path, variables: dict[str, str], output: Output) -> list[JsonObject]:
    from dataclasses import replace

    from mesh.plan.build import plan
    from mesh.testing import payload_cases

    results = []
    with pointing_at(file, "", output):
        for case in payload_cases.read(file):
            with pointing_at(case.path, case.text, output):
                text = filled(case.text, variables, case.path)
                name = plan(text).spec.name
            differences = replace(case, text=text).differences()
            if output is not Output.JSON:
                outcome = "other output than expected" if differences else "as expected"
                typer.echo(f'{shown_path(file)}: app "{name}", {case.name}: {outcome}')
                for difference in differences:
                    typer.echo(difference)
            results.append(
                {
                    "file": shown_path(file),
                    "app": name,
                    "case": case.name,
                    "differences": differences,
                }
            )
    return results


def _played(file: Path, variables: dict[str, str], output: Output, *, rewrite: bool) -> JsonObject:
    from mesh.plan.build import plan
    from mesh.testing import app_tests

    text = read_source(file)
    with pointing_at(file, text, output):
        text = filled(text, variables, file)
        # The operators alone would run an app that can't be deployed.
        name = plan(text).spec.name
        events = app_tests.read(app_tests.events_path(file))
        outputs = app_tests.play(text, events)
        path = app_tests.expected_path(file)
        if rewrite:
            path.write_text("".join(f"{one.line()}\n" for one in outputs), encoding="utf-8")
        differences = app_tests.differences(outputs, app_tests.read(path))
    sent = sum(bool(one.stream) for one in events)
    if output is not Output.JSON:
        outcome = "other output than expected" if differences else "as expected"
        typer.echo(
            f'{shown_path(file)}: app "{name}", {sent} events, {len(outputs)} out: {outcome}'
        )
        for difference in differences:
            typer.echo(difference)
    return {
        "file": shown_path(file),
        "app": name,
        "events": sent,
        "out": len(outputs),
        "differences": differences,
    }


def init(
    name: Annotated[str, typer.Argument(help="Name of the app and its folder.", metavar="NAME")],
) -> None:
    """Write a small project into a new folder: an app, its test, a README.

    Example: `mesh init shop`, then `cd shop` and `mesh dev --watch`
    """
    from mesh.model import names

    folder = Path(name)
    app = name[:1].upper() + name[1:]
    if not names.is_app_name(app) or folder.name != name:
        raise MeshError(
            "MESH-U121",
            f'"{name}" is no name of an app',
            hint="A name has letters, digits and _.",
        )
    if folder.exists():
        raise MeshError("MESH-U163", f'folder "{folder}" exists', hint="Choose another name.")
    folder.mkdir()
    for path in sorted(
        resources.files("mesh.cli").joinpath("project").iterdir(), key=lambda one: one.name
    ):
        text = path.read_text(encoding="utf-8")
        text = text.replace(_TEMPLATE, app).replace(_TEMPLATE.lower(), name)
        target = folder / path.name.replace(_TEMPLATE.lower(), name)
        target.write_text(text, encoding="utf-8")
    typer.echo(f"{folder}/ has an app, its test and a README.  Try: cd {folder}; mesh dev --watch")
