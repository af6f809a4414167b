"""Options of ``@store``, as an app has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.language.parser import parse
from mesh.plan.bind import bind
from mesh.plan.stores import stored_table_of
from mesh.store import sources

if TYPE_CHECKING:
    from mesh.model.stored import Database, StoreOptions


def options_of(store: str) -> StoreOptions:
    table = f"define stream S (k string); @store(type='rdbms', {store}) @PrimaryKey('k') "
    app = bind(parse(table + "define table T (k string); from S select k insert into T;"))
    found = stored_table_of(app.tables[0])
    assert found is not None
    return found


def database(store: str, app: str = "") -> Database:
    return sources.database(options_of(store), app)


def redis(store: str) -> Database:
    table = f"define stream S (k string); @store(type='redis', {store}) @PrimaryKey('k') "
    app = bind(parse(table + "define table T (k string); from S select k insert into T;"))
    found = stored_table_of(app.tables[0])
    assert found is not None
    return sources.database(found)
