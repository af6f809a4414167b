"""``mesh init``: a small project with an app, its test and a README."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from mesh.errors import MeshError

#: Name of the template's app, and of its files in lower case.
_TEMPLATE = "Starter"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init", rich_help_panel="An app's text")(init)


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
