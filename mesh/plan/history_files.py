"""The files that a path names, without reading them; a manager looks before it deploys the app."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Sequence

PARQUET: Final = (".parquet", ".pq")
_CSV: Final = (".csv", ".csv.gz")


def files_of(root: str, path: str) -> Sequence[Path]:
    """The files of a path, in their order; hidden ones are left out.

    Args:
        root: directory outside of which nothing is read.
        path: a file, or a directory with all files below it, relative to ``root`` or absolute.

    Raises:
        MeshError: MESH-C161 for what is no file of events.
    """
    if "\0" in path:
        raise unusable("the path has a character that no path has", "It is U+0000.")
    if "://" in path:
        raise unusable(
            f"{path} is no path",
            "History is read from files of the manager's machine, from databases, from streams of "
            "NATS, and from Iceberg tables; from object stores by a catalog alone.",
        )
    top = Path(os.path.realpath(root))
    place = Path(os.path.realpath(top / path))
    if not place.is_relative_to(top):
        raise unusable(f"{path} is outside of manager.history_dir", f"That is {top}.")
    if not place.exists():
        raise unusable(f"there is no {path} in manager.history_dir", f"That is {top}.")
    if place.is_file():
        return [_checked(place, top)]
    if any((place / "metadata").glob("*.metadata.json")):
        raise unusable(
            f"{path} is an Iceberg table",
            "Name its current metadata, as in orders/metadata/00002-1f.metadata.json, or its "
            "catalog, as in iceberg:warehouse#shop.orders.",
        )
    inside = (
        one
        for one in place.rglob("*")
        if one.is_file()
        and not any(part.startswith((".", "_")) for part in one.relative_to(place).parts)
    )
    files = [_checked(one, top) for one in sorted(inside)]
    if not files:
        raise unusable(f"{path} has no files", "Hidden files are left out.")
    return files


def _checked(path: Path, top: Path) -> Path:
    if not Path(os.path.realpath(path)).is_relative_to(top):
        raise unusable(f"{path} is a link that leaves manager.history_dir", f"That is {top}.")
    if not path.name.endswith((*PARQUET, *_CSV)):
        raise unusable(f"{path} is neither Parquet nor CSV", "The name says which it is.")
    return path


def unusable(what: str, detail: str) -> MeshError:
    """MESH-C161: files, a table or a stream that are no history."""
    return MeshError(
        "MESH-C161",
        what,
        detail=detail or None,
        hint="History is Parquet (.parquet) or CSV (.csv, .csv.gz), a file or a directory; or a "
        "table, as in 'postgresql://host/name#table' or 'iceberg:catalog#space.table'; or a stream "
        "of JetStream, as in 'nats:OLD_ORDERS'. Write other data to Parquet first.",
    )
