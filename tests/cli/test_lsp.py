"""``mesh lsp``: streams of the cluster for its proposals, and the library that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.cli.lsp import streams_of
from mesh.client import Client
from mesh.client.context import ClientContext
from mesh.language_service.proposals import ClusterStream
from tests.support.manager_api import manager_api

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


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
