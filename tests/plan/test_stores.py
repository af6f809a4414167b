"""What ``mesh plan`` says of groups that read tables in databases.

Addresses of databases: JDBC URLs, and URLs of SQLAlchemy's form; none is shown in an error.
"""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.model.stored import Backend, Database
from mesh.plan.build import plan
from mesh.plan.history_addresses import table_of
from mesh.plan.stores import database_of

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


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:mysql://h:3307/shop", Database(Backend.MYSQL, "shop", "h", 3307)),
        ("jdbc:mariadb://h/shop?charset=utf8mb4&x=y",
         Database(Backend.MYSQL, "shop", "h", None, parameters=(("charset", "utf8mb4"),))),
        ("jdbc:postgresql://h/shop?user=ann&password=p&sslmode=require",
         Database(Backend.POSTGRESQL, "shop", "h", None, "ann", "p",
                  (("sslmode", "require"),))),
        ("jdbc:postgresql:shop", Database(Backend.POSTGRESQL, "shop", "localhost")),
        ("postgresql+psycopg://ann:p%40ss@h:1/a%20b",
         Database(Backend.POSTGRESQL, "a b", "h", 1, "ann", "p@ss")),
        ("jdbc:sqlite:/var/lib/t.db?mode=ro", Database(Backend.SQLITE, "/var/lib/t.db")),
        ("sqlite:////var/lib/t.db", Database(Backend.SQLITE, "/var/lib/t.db")),
        ("sqlite:///t.db", Database(Backend.SQLITE, "t.db")),
    ],
)  # fmt: skip
def test_an_address_is_read(url: str, expected: Database) -> None:
    assert database_of(url, None, None) == expected


def test_a_login_of_the_options_goes_before_that_of_the_url() -> None:
    url = "postgresql://ann:old@h/shop"
    assert database_of(url, "bob", "new").username == "bob"
    assert database_of(url, "bob", "new").password == "new"
    assert database_of(url, "", "").username == ""
    assert database_of(url, None, None).password == "old"


@given(user=st.text(min_size=1, max_size=9), password=st.text(max_size=9))
def test_any_login_is_read_from_a_url(user: str, password: str) -> None:
    named = f"{quote(user, safe='')}:{quote(password, safe='')}"
    found = database_of(f"mysql://{named}@h/shop", None, None)
    assert (found.username, found.password) == (user, password)
    assert str(found) == "mysql://h/shop"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("jdbc:oracle:thin:@h:1521:x", "MESH-P900"),
        ("", "MESH-P900"),
        ("jdbc:mysql://h:secret/shop", "MESH-P240"),
        ("jdbc:mysql://u:secret@/shop", "MESH-P240"),
        ("jdbc:mysql://u:secret@h/", "MESH-P240"),
        ("jdbc:postgresql://[secret/shop", "MESH-P240"),
        ("jdbc:sqlite:", "MESH-P240"),
        ("sqlite:///:memory:", "MESH-P240"),
    ],
)
def test_what_is_no_address_is_refused_and_not_shown(url: str, code: str) -> None:
    with pytest.raises(MeshError) as refusal:
        database_of(url, None, None)
    assert refusal.value.code == code
    assert "secret" not in refusal.value.render()
    assert refusal.value.__cause__ is None
