"""Settings of a deployment of the original, and those that they become."""

from __future__ import annotations

import pytest
import yaml

from mesh.errors import MeshError
from mesh.migrate.deployment import is_deployment, migrate_deployment
from tests.support.deployment import DEPLOYMENT


@pytest.mark.parametrize(("given", "expected"), [("true", True), ("false", False)])
def test_the_permission_of_statements_becomes_a_setting(given: str, expected: bool) -> None:
    made = migrate_deployment(
        f"""siddhi:
          extensions:
            - extension:
                name: cud
                namespace: rdbms
                properties:
                  perform.CUD.operations: {given}
            - extension:
                name: cud
                namespace: other
        """
    )
    assert yaml.safe_load(made.files["mesh.yaml"]) == {"stores": {"cud_operations": expected}}
    assert any("other:cud is left out" in note.text for note in made.notes)


def test_every_section_of_a_deployment_has_a_note() -> None:
    made = migrate_deployment(DEPLOYMENT)
    told = " ".join(note.text for note in made.notes)
    for word in (
        "wso2.carbon", "partitionById", "shardId", "orders.pw", '"orders"', '"ORDERS_DB"',
        '"LOCAL_DB" is left out', "state.persistence", "distributed", "heartbeatInterval",
        "some.other",
    ):  # fmt: skip
        assert word in told, word
    assert made.types == {"orders": "http"}
    assert is_deployment(DEPLOYMENT)
    for text in ("- a\n", "a: [\n  hunter2"):
        with pytest.raises(MeshError, match="can't be read") as raised:
            migrate_deployment(text)
        assert "hunter2" not in raised.value.render()


def test_a_reference_of_a_store_becomes_a_data_source() -> None:
    made = migrate_deployment(
        """siddhi:
          refs:
            - ref:
                name: warehouse
                type: rdbms
                properties:
                  jdbc.url: jdbc:mysql://db:3306/stock
                  username: stock
                  password: ${sec:stock.pw}
                  jdbc.driver.name: com.mysql.jdbc.Driver
            - ref:
                name: counts
                type: redis
                properties: {nodes: 'r1:6379@hunter2'}
            - ref:
                name: old
                type: rdbms
                properties: {jdbc.url: 'jdbc:oracle:thin:@h:1521:x'}
        """
    )
    assert made.types == {"warehouse": "rdbms", "counts": "redis", "old": "rdbms"}
    assert yaml.safe_load(made.files["sources.yaml"]) == {
        "warehouse": {
            "url": "jdbc:mysql://db:3306/stock",
            "username": "stock",
            "password": "${secret:stock_pw}",
        },
        "counts": {"url": "redis://r1:6379", "password": "hunter2"},
    }
    assert yaml.safe_load(made.files["mesh.yaml"]) == {"stores": {"sources_file": "sources.yaml"}}
    assert any('"old" is left out' in note.text for note in made.notes)
