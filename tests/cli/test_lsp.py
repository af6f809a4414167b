"""``mesh lsp``: streams of the cluster for its proposals, and the library that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.cli.lsp import rates_of, streams_of
from mesh.client import Client
from mesh.client.context import ClientContext
from mesh.errors import MeshError
from mesh.language_service.proposals import ClusterStream
from tests.support.manager_api import manager_api

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


@pytest.mark.slow
@pytest.mark.nats
def test_streams_of_the_cluster_are_found(nats_server: NatsServer, tmp_path: Path) -> None:
    text = "@App:name('Shop') define stream Orders (item string, price double);"
    query = "from Orders[price > 1.0] select item insert into Dear;"
    with manager_api(nats_server, tmp_path) as url:
        with Client(ClientContext(url, "ada", "pw")) as client:
            client.deploy(f"{text} {query}")
        found = streams_of(ClientContext(url, "ada", "pw"))
        refused = streams_of(ClientContext(url, "ada", "wrong"))
    assert ClusterStream("Shop", "Orders", "item string, price double") in found
    assert ClusterStream("Shop", "Dear", "item string") in found
    assert refused == []
    assert streams_of(ClientContext()) == []


def test_without_its_library_the_command_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mesh.cli.lsp.find_spec", lambda _: None)
    answer = CliRunner().invoke(app, ["lsp"])
    assert answer.exit_code == 1
    assert "MESH-U185" in answer.stderr
    assert "pip install 'nats-event-mesh[lsp]'" in answer.stderr


def test_the_rate_of_a_group_is_the_last_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked:
        """A client whose cluster has the history of one group."""

        def __init__(self, context: ClientContext) -> None: ...

        def __enter__(self) -> Asked:
            return self

        def __exit__(self, *error: object) -> None: ...

        def history(self, *, app: str, group: str, seconds: float, step: float) -> dict[str, Any]:
            if group != "sums":
                raise MeshError("MESH-A404", f'group "{app}/{group}" has no history')
            return {"values": {"events_in": [None, 3.0, 2.5, None]}}

    monkeypatch.setattr("mesh.client.Client", Asked)
    assert rates_of(ClientContext(), "Shop", ["sums"]) == {"sums": 2.5}
    assert rates_of(ClientContext(), "Shop", ["sums", "none"]) == {"sums": 2.5}
