"""Addresses of Iceberg tables with past events.

orders/metadata/00002-9274643d.metadata.json      the metadata of a table in manager.history_dir
iceberg:warehouse#shop.orders                     a table of a catalog that PyIceberg knows by name

A directory alone does not say which of its metadata is current; a catalog does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.plan.history_files import unusable

if TYPE_CHECKING:
    from collections.abc import Collection

_CATALOG: Final = "iceberg:"
METADATA: Final = ".metadata.json"


@dataclass(frozen=True, slots=True)
class IcebergPlace:
    """An Iceberg table."""

    #: With its namespace, in a catalog; empty for one of a metadata file.
    catalog: str
    table: str
    #: Its metadata, and the directory outside of which no file of it is read.
    metadata: str = ""
    root: str = ""

    def __str__(self) -> str:
        """For messages."""
        return f"table {self.table} of catalog {self.catalog}" if self.catalog else self.metadata


def is_iceberg(path: str) -> bool:
    """Whether a path of a history is an Iceberg table."""
    return path.startswith(_CATALOG) or path.endswith(METADATA)


def iceberg_of(root: str, path: str) -> IcebergPlace:
    """The table of an address; MESH-C161 for one that names none.

    Args:
        root: directory outside of which no metadata is read.
        path: as above.
    """
    if path.startswith(_CATALOG):
        catalog, _, table = path.removeprefix(_CATALOG).partition("#")
        if not catalog or not table:
            raise unusable(
                "the address of an Iceberg table names no table",
                "It is iceberg:CATALOG#NAMESPACE.TABLE.",
            )
        return IcebergPlace(catalog, table)
    top = Path(os.path.realpath(root))
    place = Path(os.path.realpath(top / path))
    if "\0" in path or not place.is_relative_to(top) or not place.is_file():
        raise unusable(f"there is no {path} in manager.history_dir", f"That is {top}.")
    return IcebergPlace("", "", str(place), str(top))


def check_catalog(place: IcebergPlace, allowed: Collection[str]) -> None:
    """Refuse a catalog that is not among those of ``manager.history_catalogs``."""
    if place.catalog and place.catalog not in allowed:
        raise MeshError(
            "MESH-C161",
            f"this manager reads no past events from Iceberg catalog {place.catalog}",
            detail=f"Open are: {', '.join(allowed) or 'none'}.",
            hint="Add it to the setting manager.history_catalogs.",
        )
