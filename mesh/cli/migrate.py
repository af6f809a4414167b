"""``mesh migrate``: apps and settings of Siddhi 3, 4 and 5, as they can be deployed here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

# typer reads the annotations when the command line is built.
from mesh.cli.options import OutputOption  # noqa: TC001
from mesh.cli.output import (
    Output,
    counted,
    read_source,
    show_error,
    show_json,
    show_table,
    shown_path,
    writes,
)
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.migrate import Note
    from mesh.model.values import JsonObject

_APPS: Final = (".siddhi", ".siddhiql")
_SETTINGS: Final = (".yaml", ".yml")

WriteOption = Annotated[
    Path | None,
    typer.Option("--write", metavar="DIR", help="Write the apps and settings into this directory."),
]
PathArgument = Annotated[
    Path, typer.Argument(help="A text, a deployment.yaml, or a directory of them.", metavar="PATH")
]


@dataclass(slots=True)
class _Done:
    """Result for one file."""

    path: Path
    app: str = ""
    version: str = ""
    state: str = ""
    #: Texts by their path below the target.
    files: dict[Path, str] = field(default_factory=dict)
    notes: Sequence[Note] = ()
    errors: Sequence[MeshError] = ()
    text: str = ""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="An app's text")(migrate)


def migrate(
    path: PathArgument, write: WriteOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Bring apps of Siddhi 3, 4 and 5, and settings of a deployment, into a form that runs here.

    Shows for each file what is changed, what has another meaning, and what has no counterpart.
    Without `--write` nothing is written. The exit code is 1 if a file can't be deployed afterwards.

    Example: `mesh migrate old/ --write new/`
    """
    from mesh.migrate.deployment import is_deployment, migrate_deployment

    if write is not None and path.is_dir() and write.resolve() == path.resolve():
        raise typer.BadParameter("it is the directory that is read", param_hint="--write")
    root, paths = path if path.is_dir() else path.parent, _files(path)
    done: list[_Done] = []
    types: dict[str, str] = {}
    for file in (one for one in paths if one.suffix in _SETTINGS):
        try:
            text = read_source(file)
            if not is_deployment(text):
                continue
            result = migrate_deployment(text)
        except MeshError as error:
            done.append(_Done(file, state=_unreadable(), errors=(error,)))
            continue
        types |= result.types
        folder = file.parent.relative_to(root)
        files = {folder / name: content for name, content in result.files.items()}
        done.append(_Done(file, "", "settings", "changed", files, result.notes))
    done += [_app(file, root, types) for file in paths if file.suffix not in _SETTINGS]
    if write is not None:
        _write(write, done)
    failed = [one for one in done if one.errors]
    if output is Output.JSON:
        show_json({"deployable": not failed, "files": [_values(one) for one in done]})
    else:
        for one in done:
            _show(one)
        if len(done) > 1 or path.is_dir():
            _show_table(done)
    if failed:
        raise typer.Exit(1)


def _files(path: Path) -> list[Path]:
    """The files below a directory, or the path itself."""
    if not path.is_dir():
        return [path]
    kinds = (*_APPS, *_SETTINGS)
    return sorted(one for one in path.rglob("*") if one.suffix in kinds and one.is_file())


def _unreadable() -> str:
    from mesh.migrate import MigrationState

    return MigrationState.REFUSED


def _app(file: Path, root: Path, types: Mapping[str, str]) -> _Done:
    from mesh.migrate import migrate_app

    try:
        result = migrate_app(read_source(file), file.stem or "app", types)
    except MeshError as error:
        return _Done(file, state=_unreadable(), errors=(error,))
    target = (file.relative_to(root) if str(file) != "-" else Path("app")).with_suffix(".siddhi")
    files = {target: result.text}
    return _Done(
        file,
        result.app,
        result.version,
        result.state,
        files,
        result.notes,
        result.errors,
        result.text,
    )


def _write(target: Path, done: Sequence[_Done]) -> None:
    """Write the files; none that exists with another content is replaced."""
    contents = {target / name: text for one in done for name, text in one.files.items()}
    for file, text in contents.items():
        if file.exists() and file.read_bytes() != text.encode():
            raise MeshError(
                "MESH-U164",
                f'file "{shown_path(file)}" exists with another content',
                hint="Name another directory: nothing has been written.",
            )
    for file, text in contents.items():
        with writes(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            # Settings may hold passwords.
            file.touch(mode=0o600 if file.suffix in _SETTINGS else 0o644, exist_ok=True)
            file.write_bytes(text.encode())


def _values(one: _Done) -> JsonObject:
    return {
        "file": shown_path(one.path),
        "app": one.app or None,
        "version": one.version,
        "state": str(one.state),
        "files": {str(name): text for name, text in one.files.items()},
        "notes": [{"kind": str(n.kind), "line": n.line, "text": n.text} for n in one.notes],
        "errors": [error.to_dict() for error in one.errors],
    }


def _show(one: _Done) -> None:
    name = shown_path(one.path)
    typer.echo(f"{name}: {one.state}")
    heading = ""
    for note in sorted(one.notes, key=lambda note: (note.kind, note.line)):
        if note.kind != heading:
            heading = note.kind
            typer.echo(f"  {heading}:")
        typer.echo(f"    {f'line {note.line}: ' if note.line else ''}{note.text}")
    for error in one.errors:
        show_error(error, one.text or None, name)


def _show_table(done: Sequence[_Done]) -> None:
    from mesh.migrate import NoteKind

    show_table(
        ("file", "app", "Siddhi", "outcome", *(str(kind) for kind in NoteKind)),
        [
            (
                one.path.name, one.app, one.version, str(one.state),
                *(sum(note.kind is kind for note in one.notes) for kind in NoteKind),
            )
            for one in done
        ],
    )  # fmt: skip
    failed = sum(bool(one.errors) for one in done)
    typer.echo(f"{counted(len(done), 'file')}, {failed} not deployable")
