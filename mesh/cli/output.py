"""Output of commands: tables, JSON, and errors with the line that they refer to."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import typer

from mesh.errors import MeshError, all_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mesh.model.values import JsonMapping, JsonObject


class Output(StrEnum):
    """``--output``."""

    TEXT = "text"
    JSON = "json"


def show_json(values: object) -> None:
    """Print values as indented JSON."""
    sys.stdout.write(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode() + "\n")


def show(output: Output, values: object, text: str) -> None:
    """Print values as JSON, or as text if there is any."""
    if output is Output.JSON:
        show_json(values)
    elif text:
        typer.echo(text)


def show_rows(
    output: Output, values: object, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Print values as JSON, or as a table."""
    if output is Output.JSON:
        show_json(values)
    else:
        show_table(columns, rows)


def because(status: JsonMapping) -> str:
    """The reason of a status to follow its state; empty without one."""
    return f": {status['reason']}" if status.get("reason") else ""


def counted(count: int, thing: str) -> str:
    """``1 event``, ``2,000 events``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below headings; None is empty, numbers are right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    cells = [list(row) for row in rows]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        values = [row[index] for row in cells if row[index] is not None]
        is_number = bool(values) and all(type(value) in (int, float) for value in values)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*("" if value is None else escape(_shown(value)) for value in row))
    # A pipe gets whole lines of any length: it has no width.
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(table)


def read_source(path: Path) -> str:
    """The text of a ``.siddhi`` file, ``-`` for standard input; MESH-U120 when it can't be read."""
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        # Editors of Windows write a byte order mark.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        detail = f"It is not UTF-8: byte {error.object[error.start]:#04x} at {error.start}."
    except (OSError, ValueError) as error:
        detail = f"{getattr(error, 'strerror', None) or error}."
    raise MeshError("MESH-U120", f'file "{shown_path(path)}" can\'t be read', detail=detail)


@contextmanager
def writes(path: Path) -> Iterator[None]:
    """Report what keeps the block from writing a file: MESH-U125."""
    try:
        yield
    except OSError as error:
        raise MeshError(
            "MESH-U125",
            f'file "{shown_path(path)}" can\'t be written',
            detail=f"{error.strerror or error}.",
        ) from error


def shown_path(path: Path) -> str:
    """A path as text, for any bytes in its name; ``<stdin>`` for standard input."""
    if str(path) == "-":
        return "<stdin>"
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")


@contextmanager
def pointing_at(path: Path, text: str, output: Output = Output.TEXT) -> Iterator[None]:
    """Show errors with their lines of ``text``, and end with exit code 1."""
    try:
        yield
    except MeshError as error:
        if output is Output.JSON:
            show_json(refusal(path, error))
        else:
            for one in all_errors(error):
                show_error(one, text, shown_path(path))
        raise typer.Exit(1) from error


def refusal(path: Path, error: MeshError) -> JsonObject:
    """The errors of a file as JSON values."""
    values = [one.to_dict() for one in all_errors(error)]
    return {"file": shown_path(path), "error": values[0], "errors": values}


def show_error(error: MeshError, text: str | None = None, source: str = "app.siddhi") -> None:
    """Print an error on standard error."""
    sys.stderr.write(error.render(text, source) + "\n")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
