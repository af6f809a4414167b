"""``@store`` of tables and aggregations: options as a value, and parts that do not run yet.

Addresses of databases: JDBC URLs of the reference engine, and URLs of SQLAlchemy's form.

The driver's name is not needed: the kind of the database is in the URL.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from mesh.errors import MeshError, not_supported
from mesh.language.syntax import find
from mesh.model.column_types import Backend, backend_of
from mesh.model.stored import (
    ROW_NUMBER,
    CacheOptions,
    CachePolicy,
    Database,
    StoreKind,
    StoreOptions,
    name_problem,
)
from mesh.model.types import AttributeType
from mesh.plan.annotations import time_in
from mesh.plan.diagnostics import nearest
from mesh.plan.redis_stores import REDIS_OPTIONS, life_in, redis_in, wrong_store

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mesh.errors import Position
    from mesh.language.syntax import Annotation
    from mesh.plan.bound import BoundAggregation, BoundApp, BoundTable


#: Options that are taken, most of them without an effect: each database is used as it has to be.
RDBMS_OPTIONS: Final = frozenset(
    {
        "type", "jdbc.url", "url", "username", "password", "jdbc.driver.name", "pool.properties",
        "jndi.resource", "datasource", "ref", "table.name", "field.length", "table.check.query",
        "use.collation", "allow.null.values", "on.error", "kept", "isautocommit",
    }
)  # fmt: skip
_CACHE: Final = ("size", "cache.policy", "retention.period", "purge.interval")
_CACHE_MAX: Final = 1_000_000
_TABLE_LENGTH_MAX: Final = 50


def _check_options(annotation: Annotation, *, is_redis: bool) -> None:
    """Refuse an unknown option; MESH-P240."""
    allowed = REDIS_OPTIONS if is_redis else RDBMS_OPTIONS
    for key, _ in annotation.elements:
        # The seed writes the driver's class without a name.
        if key is not None and key.lower() not in allowed:
            hint = nearest(key, allowed)
            raise wrong_store(annotation, f'option "{key}" of @store is unknown', hint)


def store_of(
    annotations: tuple[Annotation, ...], attributes: Collection[str], definition: str
) -> StoreOptions | None:
    """The store of a definition with these annotations; None without one.

    Args:
        annotations: of the definition.
        attributes: the names that ``field.length`` may have.
        definition: its name, which its table has without ``table.name``.

    Raises:
        MeshError: MESH-P900 for a part of it that does not run yet; MESH-P240 for a wrong or
            missing option.
    """
    annotation = find(annotations, "store")
    if annotation is None:
        return None
    is_redis = annotation.get("type") == StoreKind.REDIS
    kind = StoreKind.REDIS if is_redis else StoreKind.RDBMS
    _check_options(annotation, is_redis=is_redis)
    on_error = (annotation.get("on.error") or "RETRY").upper()
    # The reference engine waits and tries again with LOG as well.
    if on_error not in ("RETRY", "LOG", "STORE"):
        raise not_supported(
            f"on.error='{on_error}' of a store", annotation.position, hint="Use RETRY or STORE."
        )
    name = annotation.get("table.name")
    if name is not None and not 0 < len(name) <= _TABLE_LENGTH_MAX:
        raise wrong_store(annotation, f"table.name has 1 to {_TABLE_LENGTH_MAX} characters")
    reason = name_problem(name or definition, has_schemas=not is_redis)
    if reason is not None:
        raise wrong_store(annotation, reason)
    if is_redis and ":" in (name or ""):
        raise wrong_store(annotation, "table.name has no colon: one ends the table's name in keys")
    lengths = _lengths(annotation, attributes)
    cache = _cache(annotation)
    life = life_in(annotation) if is_redis else None
    options = replace(
        _database(annotation, kind),
        table_name=name,
        lengths=lengths,
        cache=cache,
        kind=kind,
        life=life,
    )
    choice = annotation.get("kept")
    if choice is not None and choice.lower() not in ("true", "false"):
        raise wrong_store(annotation, f'kept is true or false, not "{choice}"')
    if cache is not None and (choice or "").lower() == "true":
        raise wrong_store(annotation, "a table that is kept in the state has no @cache")
    is_in_state = not _is_in_database(annotation)
    if life is not None and (is_in_state or cache is not None):
        raise wrong_store(annotation, "rows with ttl.seconds are nowhere else: no @cache, no kept")
    is_refusable = on_error == "STORE"
    if is_refusable and is_redis:
        raise not_supported(
            "on.error='STORE' of a store in Redis",
            annotation.position,
            hint="Leave it out: Redis has no rules by which it would refuse a row.",
        )
    if is_refusable and (is_in_state or cache is not None):
        # Answers, and what left, would have a row that the database does not have.
        raise not_supported(
            "on.error='STORE' of rows that the mesh has beside the database",
            annotation.position,
            hint="Leave it out: the group waits until the database takes them. Or, for a table, "
            "let its rows stay in the database: add kept='false', without @cache.",
        )
    return replace(options, is_in_state=is_in_state, is_refusable=is_refusable)


def stored_in(aggregation: BoundAggregation) -> StoreOptions | None:
    """The store of an aggregation, whose strings may have lengths; None without one.

    Raises:
        MeshError: see ``store_of``.
    """
    names = [column.name for column in aggregation.group_by]
    names += [output.name for output in aggregation.outputs]
    options = store_of(aggregation.annotations, names, aggregation.schema.name)
    if options is not None and not options.is_in_state:
        annotation = find(aggregation.annotations, "store")
        assert annotation is not None, "it has been read"
        raise wrong_store(annotation, "@cache and kept are for tables, not for an aggregation")
    if options is not None and options.kind is not StoreKind.RDBMS:
        raise not_supported(
            f'an aggregation in a store of type "{options.kind}"',
            aggregation.position,
            hint="Use rdbms, which adds amounts to rows in its transaction.",
        )
    return options


def stored_table_of(table: BoundTable) -> StoreOptions | None:
    """The store of a table; None without one.

    Raises:
        MeshError: see ``store_of``; MESH-P900 for rows that stay in the database without a primary
            key, and for objects; MESH-P240 for an attribute with the name of the key column.
    """
    store = store_of(table.annotations, table.schema.names, table.schema.name)
    if store is None:
        return None
    position = find(table.annotations, "store").position  # type: ignore[union-attr]
    if not table.primary_key and not store.is_in_state:
        raise not_supported(
            "a table without a primary key whose rows stay in the database",
            position,
            hint="Add @PrimaryKey, or keep its rows in the state: leave out kept, @cache and "
            "ttl.seconds.",
        )
    if ROW_NUMBER in table.schema.names and not table.primary_key:
        raise MeshError(
            "MESH-P240",
            f'attribute "{ROW_NUMBER}" has the name of the column of row numbers',
            hint="Name it otherwise, or add @PrimaryKey.",
            position=position,
        )
    if any(attribute.type is AttributeType.OBJECT for attribute in table.schema.attributes):
        raise not_supported("an object of a table in a store", position)
    return store


def stored_definitions(app: BoundApp) -> list[tuple[str, StoreOptions]]:
    """Name and store of each table and aggregation with one; tables are first.

    Raises:
        MeshError: see ``store_of``.
    """
    stores = [(one.schema.name, stored_table_of(one)) for one in app.tables]
    stores += [(one.schema.name, stored_in(one)) for one in app.aggregations]
    return [(name, options) for name, options in stores if options is not None]


def is_lookup_table(table: BoundTable) -> bool:
    """Whether a table's rows stay in its database; options that are wrong are not looked at."""
    annotation = find(table.annotations, "store")
    if annotation is None:
        return False
    return _is_in_database(annotation)


def is_read_by_key(table: BoundTable) -> bool:
    """Whether a table's rows stay in a store that finds them by their key alone."""
    annotation = find(table.annotations, "store")
    return (
        annotation is not None
        and annotation.get("type") == StoreKind.REDIS
        and is_lookup_table(table)
    )


def _is_in_database(annotation: Annotation) -> bool:
    """Whether rows stay in the database: as written, otherwise with a cache or a time to live."""
    choice = (annotation.get("kept") or "").lower()
    has_life = (annotation.get("ttl.seconds") or "-1") != "-1"
    return choice == "false" or (
        not choice and (has_life or find(annotation.annotations, "cache") is not None)
    )


def is_in_file(annotations: tuple[Annotation, ...]) -> bool:
    """Whether the database of a table or an aggregation is a file of one machine."""
    annotation = find(annotations, "store")
    urls = [annotation.get(key) for key in ("jdbc.url", "url")] if annotation is not None else []
    return any(url.removeprefix("jdbc:").startswith("sqlite") for url in urls if url is not None)


def _cache(annotation: Annotation) -> CacheOptions | None:
    """``@cache`` inside of ``@store``; None without it."""
    written = find(annotation.annotations, "cache")
    if written is None:
        return None
    for key, _ in written.elements:
        if key is None or key.lower() not in _CACHE:
            raise wrong_store(written, f'option "{key}" of @cache is unknown')
    size = written.get("size") or ""
    if not size.isdecimal() or not 0 < int(size) <= _CACHE_MAX:
        raise wrong_store(written, f"the size of @cache is a number of rows from 1 to {_CACHE_MAX}")
    policy = (written.get("cache.policy") or CachePolicy.FIFO).upper()
    if policy not in CachePolicy.__members__:
        raise wrong_store(written, f'cache.policy is FIFO, LRU or LFU, not "{policy}"')
    retention_ms = time_in(written, "retention.period") or None
    # A row that is too old is not used, whenever it is removed.
    time_in(written, "purge.interval")
    return CacheOptions(int(size), CachePolicy[policy], retention_ms)


def _database(annotation: Annotation, kind: StoreKind) -> StoreOptions:
    source = (
        annotation.get("datasource") or annotation.get("ref") or annotation.get("jndi.resource")
    )
    if source is not None:
        return StoreOptions(None, source)
    if kind is StoreKind.REDIS:
        return StoreOptions(redis_in(annotation))
    url = annotation.get("jdbc.url") or annotation.get("url")
    if url is None:
        raise wrong_store(annotation, "@store needs jdbc.url, or datasource")
    username, password = annotation.get("username"), annotation.get("password")
    database = database_of(url, username, password, annotation.position)
    timeout_ms = _properties(annotation, "pool.properties").get("connectionTimeout")
    if timeout_ms is not None:
        if not timeout_ms.isdecimal() or not int(timeout_ms):
            raise wrong_store(annotation, "connectionTimeout is a number of milliseconds")
        database = replace(database, connect_timeout_s=min(int(timeout_ms) / 1000, 10.0))
    return StoreOptions(database)


def _lengths(annotation: Annotation, attributes: Collection[str]) -> Mapping[str, int]:
    lengths: dict[str, int] = {}
    for name, text in _properties(annotation, "field.length").items():
        if name not in attributes:
            raise wrong_store(annotation, f'field.length names "{name}", which is no attribute')
        if not text.isdecimal() or not 0 < int(text) <= 16_383:
            raise wrong_store(annotation, f'the length of "{name}" is not a number from 1 to 16383')
        lengths[name] = int(text)
    return lengths


def _properties(annotation: Annotation, option: str) -> dict[str, str]:
    """``a:1,b:2`` as a mapping."""
    text = annotation.get(option)
    parts = [part.partition(":") for part in (text or "").split(",") if part.strip()]
    if any(not colon for _, colon, _ in parts):
        raise wrong_store(annotation, f"{option} is written name:value,name:value")
    return {name.strip(): value.strip() for name, _, value in parts}


#: Parameters that a driver takes under the same name.
_PARAMETERS: Final = {
    Backend.POSTGRESQL: ("sslmode", "sslrootcert", "application_name", "options"),
    Backend.MYSQL: ("charset",),
    Backend.SQLITE: (),
}
_JDBC: Final = "jdbc:"


def database_of(
    url: str, username: str | None, password: str | None, position: Position | None = None
) -> Database:
    """The database of a URL.

    Args:
        url: ``jdbc:mysql://host:port/name?..``, ``jdbc:postgresql:..``, ``jdbc:mariadb:..``,
            ``jdbc:sqlite:file``, or ``postgresql+psycopg://user@host/name`` and its like.
        username: of the login; None: that in the URL.
        password: likewise.
        position: of the annotation, for errors.

    Raises:
        MeshError: MESH-P900 for a database without a driver here; MESH-P240 for a URL that can't
            be read.
    """
    is_jdbc = url.startswith(_JDBC)
    kind, _, address = url.removeprefix(_JDBC).partition(":")
    backend = backend_of(url)
    if backend is None:
        raise not_supported(
            f"a store in a database of kind {kind or 'without a name'}",
            position,
            hint="Use PostgreSQL, MySQL, MariaDB or SQLite.",
        )
    if backend is Backend.SQLITE:
        return _file(address.partition("?")[0], position, is_jdbc=is_jdbc)
    try:
        # JDBC allows ``jdbc:postgresql:name`` for a database of this machine.
        parts = urlsplit(address if address.startswith("//") else f"//localhost/{address}")
        port = parts.port
    except ValueError:
        # Its message shows what it took for a port, which may be a password.
        raise _unreadable(position, "Host or port can't be read.") from None
    database = unquote(parts.path.removeprefix("/"))
    if not parts.hostname or not database:
        raise _unreadable(position, "A host and the name of a database are needed.")
    params = dict(parse_qsl(parts.query, keep_blank_values=True))
    url_user = unquote(parts.username or "") or params.get("user", "")
    url_password = unquote(parts.password or "") or params.get("password", "")
    return Database(
        backend,
        database,
        parts.hostname,
        port,
        url_user if username is None else username,
        url_password if password is None else password,
        tuple((name, params[name]) for name in _PARAMETERS[backend] if name in params),
    )


def _file(address: str, position: Position | None, *, is_jdbc: bool) -> Database:
    path = address if is_jdbc else address.removeprefix("//").removeprefix("/")
    if not path or path == ":memory:":
        raise _unreadable(position, "A store in SQLite is a file: jdbc:sqlite:/var/lib/app.db.")
    return Database(Backend.SQLITE, path)


def _unreadable(position: Position | None, detail: str) -> MeshError:
    # The URL may hold a password, so it is not shown.
    return MeshError(
        "MESH-P240",
        "the URL of a store can't be read",
        detail=detail,
        hint="Write jdbc:mysql://host:3306/name, jdbc:postgresql://host/name or jdbc:sqlite:file.",
        position=position,
    )
