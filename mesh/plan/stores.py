"""``@store`` of tables and aggregations: options as a value, and parts that do not run yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, not_supported
from mesh.language.syntax import find
from mesh.model.stored import StoreOptions
from mesh.model.types import AttributeType
from mesh.plan.jdbc import database_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mesh.language.syntax import Annotation
    from mesh.plan.bound import BoundAggregation, BoundTable

_RDBMS: Final = "rdbms"
#: Options that are taken, most of them without an effect: each database is used as it has to be.
_KNOWN: Final = frozenset(
    {
        "type", "jdbc.url", "url", "username", "password", "jdbc.driver.name", "pool.properties",
        "jndi.resource", "datasource", "ref", "table.name", "field.length", "table.check.query",
        "use.collation", "allow.null.values", "on.error",
    }
)  # fmt: skip
_TABLE_LENGTH_MAX: Final = 50


def store_of(
    annotations: tuple[Annotation, ...], attributes: Collection[str]
) -> StoreOptions | None:
    """The store of a definition with these annotations; None without one.

    Args:
        annotations: of the definition.
        attributes: the names that ``field.length`` may have.

    Raises:
        MeshError: MESH-P900 for another kind of store, or a part of it that does not run yet;
            MESH-P240 for a wrong or missing option.
    """
    annotation = find(annotations, "store")
    if annotation is None:
        return None
    kind = (annotation.get("type") or "").lower()
    if kind != _RDBMS:
        raise not_supported(
            f"a store of type '{kind}'", annotation.position, hint="Use type='rdbms'."
        )
    for key, _ in annotation.elements:
        # The seed writes the driver's class without a name.
        if key is not None and key.lower() not in _KNOWN:
            raise _wrong(annotation, f'option "{key}" of @store is unknown')
    if find(annotation.annotations, "cache") is not None:
        raise not_supported("@cache of a store", annotation.position, hint="Leave @cache out.")
    on_error = (annotation.get("on.error") or "RETRY").upper()
    if on_error != "RETRY":
        raise not_supported(
            f"on.error='{on_error}' of a store",
            annotation.position,
            hint="Leave it out: events wait in their channel while the database is away.",
        )
    name = annotation.get("table.name")
    if name is not None and not 0 < len(name) <= _TABLE_LENGTH_MAX:
        raise _wrong(annotation, f"table.name has 1 to {_TABLE_LENGTH_MAX} characters")
    lengths = _lengths(annotation, attributes)
    options = _database(annotation)
    return replace(options, table_name=name, lengths=lengths)


def stored_in(aggregation: BoundAggregation) -> StoreOptions | None:
    """The store of an aggregation, whose strings may have lengths; None without one.

    Raises:
        MeshError: see ``store_of``.
    """
    names = [column.name for column in aggregation.group_by]
    names += [output.name for output in aggregation.outputs]
    return store_of(aggregation.annotations, names)


def stored_table_of(table: BoundTable) -> StoreOptions | None:
    """The store of a table; None without one.

    Raises:
        MeshError: see ``store_of``; MESH-P900 for a table without a primary key, or with objects.
    """
    store = store_of(table.annotations, table.schema.names)
    if store is None:
        return None
    position = find(table.annotations, "store").position  # type: ignore[union-attr]
    if not table.primary_key:
        raise not_supported(
            "a table in a store without a primary key",
            position,
            hint="Add @PrimaryKey: changes of rows are written by it.",
        )
    if any(attribute.type is AttributeType.OBJECT for attribute in table.schema.attributes):
        raise not_supported("an object of a table in a store", position)
    return store


def _database(annotation: Annotation) -> StoreOptions:
    source = (
        annotation.get("datasource") or annotation.get("ref") or annotation.get("jndi.resource")
    )
    if source is not None:
        return StoreOptions(None, source)
    url = annotation.get("jdbc.url") or annotation.get("url")
    if url is None:
        raise _wrong(annotation, "@store needs jdbc.url, or datasource")
    username, password = annotation.get("username"), annotation.get("password")
    database = database_of(url, username, password, annotation.position)
    timeout_ms = _properties(annotation, "pool.properties").get("connectionTimeout")
    if timeout_ms is not None:
        if not timeout_ms.isdecimal() or not int(timeout_ms):
            raise _wrong(annotation, "connectionTimeout is a number of milliseconds")
        database = replace(database, connect_timeout_s=min(int(timeout_ms) / 1000, 10.0))
    return StoreOptions(database)


def _lengths(annotation: Annotation, attributes: Collection[str]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for name, text in _properties(annotation, "field.length").items():
        if name not in attributes:
            raise _wrong(annotation, f'field.length names "{name}", which is no attribute')
        if not text.isdecimal() or not 0 < int(text) <= 16_383:
            raise _wrong(annotation, f'the length of "{name}" is not a number from 1 to 16383')
        found[name] = int(text)
    return found


def _properties(annotation: Annotation, option: str) -> dict[str, str]:
    """``a:1,b:2`` as a mapping."""
    text = annotation.get(option)
    parts = [part.partition(":") for part in (text or "").split(",") if part.strip()]
    if any(not colon for _, colon, _ in parts):
        raise _wrong(annotation, f"{option} is written name:value,name:value")
    return {name.strip(): value.strip() for name, _, value in parts}


def _wrong(annotation: Annotation, message: str) -> MeshError:
    return MeshError(
        "MESH-P240",
        message,
        hint="docs/stores.md lists the options.",
        position=annotation.position,
    )
