"""``mesh streams`` against a manager, without workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mesh import client
from mesh.cli.commands import app
from tests.support.manager_api import manager_api

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

TEXT = """@App:name('Shop')
define stream Orders (item string, price double);
@dist(execGroup='dear') from Orders[price > 100.0] select item, price insert into Dear;
@dist(execGroup='count', parallel='2')
partition with (item of Dear) begin
  from Dear select item, count() as n insert into Counts;
end;
"""


@pytest.mark.slow
def test_streams_have_their_kind_subject_attributes_and_messages(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    with manager_api(nats_server, tmp_path) as url:
        at = client.ClientContext(url, "ada", "pw", nats=nats_server.url)
        with client.Client(at) as cluster:
            cluster.deploy(TEXT)
            cluster.publish("Shop", "Orders", [{"item": "lamp", "price": 120.0}] * 3)
            found = {one["stream"]: one for one in cluster.streams("Shop")}
            with pytest.raises(client.MeshError) as refused:
                cluster.streams("Gone")
        known = {"MESH_SERVER": url, "MESH_USER": "ada", "MESH_PASSWORD": "pw", "COLUMNS": "200"}
        said = CliRunner().invoke(app, ["streams", "Shop"], env=known)
    kinds = {name: one["kind"] for name, one in found.items()}
    assert kinds == {"Orders": "input", "Dear": "inner", "Counts": "output"}
    assert found["Orders"]["attributes"] == {"item": "string", "price": "double"}
    assert (found["Orders"]["subject"], found["Orders"]["messages"]) == ("mesh.Shop.Orders", 3)
    assert found["Dear"]["subject"] == "mesh.Shop.Dear.by.item.*"
    assert refused.value.code == "MESH-A404"
    assert said.exit_code == 0, said.output
    rows = [line.split(maxsplit=4) for line in said.stdout.splitlines() if "mesh." in line]
    assert [row[0] for row in rows] == ["Orders", "Dear", "Counts"]
    assert [part.strip() for part in rows[0]] == [
        "Orders",
        "input",
        "mesh.Shop.Orders",
        "3",
        "item string, price double",
    ]
