"""Values for the ``${NAME}`` of a text: ``--var NAME=VALUE`` first, then the environment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

VarOption = Annotated[
    list[str] | None,
    typer.Option(
        "--var", metavar="NAME=VALUE",
        help="Value of ${NAME} in the text, repeatable; default: the environment's.",
    ),
]  # fmt: skip
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="APP",
        help="Name of the app, if its text has no @App:name; default: the file's, without suffix.",
    ),
]  # fmt: skip


def parse_variables(options: Iterable[str] | None) -> dict[str, str]:
    """The values of ``--var`` options; the last one of a name counts."""
    values = {}
    for option in options or ():
        name, equals, value = option.partition("=")
        if not equals or not re.fullmatch(r"\w+", name):
            raise typer.BadParameter(f"'{option}' is not NAME=VALUE", param_hint="--var")
        values[name] = value
    return values


def filled(text: str, variables: Mapping[str, str], file: Path, name: str | None = None) -> str:
    """A text with values in the place of its ``${NAME}``: given ones, else the environment's.

    A text without a name gets ``name``, else the one of its file.
    """
    # Most commands have this module and no text.
    from mesh.client.references import typed
    from mesh.language.naming import named
    from mesh.language.substitution import substitute, variables_for

    return named(typed(substitute(text, variables_for(text, variables))), name or stem_of(file))


def stem_of(file: Path) -> str:
    """The name of the app in a file whose text has none; empty for standard input."""
    return "" if str(file) == "-" else file.stem
