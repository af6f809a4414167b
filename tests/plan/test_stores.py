"""What ``mesh plan`` says of groups that read tables in databases."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.plan.history_addresses import table_of

TEXT = """@App:name('A')
define stream S (k string, a int);
@store(type='rdbms', jdbc.url='jdbc:postgresql://h/d'{more}) @PrimaryKey('k')
define table T (k string, a int);
from S join T on T.k == S.k select T.a insert into O;
"""
RESERVED = ["mesh_marker", "MESH_Marker", "public.mesh_reads", "`mesh_refused`", "me\u017fh_marker"]
STORE = "@store(type='rdbms', datasource='d', table.name='NAME')\ndefine table T (k string);"
SINK = (
    "@sink(type='rdbms', jdbc.url='jdbc:sqlite:f', table.name='NAME', @map(type='keyvalue'))\n"
    "define stream T (k string);"
)
SOURCE = (
    "@source(type='cdc', url='jdbc:mysql://h/d', table.name='NAME', @map(type='keyvalue'))\n"
    "define stream T (k string);"
)
REST = "\ndefine stream S (k string); from S select k insert into T;"


@pytest.mark.parametrize("table", RESERVED)
@pytest.mark.parametrize("text", [STORE, SINK, SOURCE])
def test_names_of_the_meshs_own_tables_are_refused(text: str, table: str) -> None:
    given = "@App:name('A')\n" + text.replace("NAME", table) + REST
    with pytest.raises(MeshError, match="name of the mesh's own tables") as refused:
        plan(given)
    assert refused.value.position is not None
    assert refused.value.position.line == 2
    plan(given.replace(table, "own_mesh_marker"))


@pytest.mark.parametrize("text", [STORE, SINK])
def test_a_table_that_is_written_is_named_without_a_schema(text: str) -> None:
    """It would be another table, with the point in its name."""
    given = "@App:name('A')\n" + text.replace("NAME", "sales.orders") + REST
    with pytest.raises(MeshError, match="has a name with a schema: give the name alone"):
        plan(given)


def test_a_definition_gives_no_reserved_name() -> None:
    text = TEXT.format(more="").replace("table T ", "table Mesh_Marker ")
    with pytest.raises(MeshError, match='table "Mesh_Marker" has a name'):
        plan(text.replace("join T on T.k", "join Mesh_Marker as T on T.k"))


@pytest.mark.parametrize("table", RESERVED)
def test_a_history_is_not_read_from_them(table: str) -> None:
    with pytest.raises(MeshError, match="one of the mesh's own"):
        table_of("/", f"datasource:shop#{table}")
