"""What the bench of the mesh deploys, and what it answers without measuring."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from bench.mesh import deciding, failover, harness
from bench.mesh.__main__ import main
from mesh.plan.build import plan
from pyspark_nats.connection import Connection
from pyspark_nats.connection_options import connection_options

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


@pytest.mark.parametrize(
    ("text", "stateful"),
    [
        (harness.APP, [True, False]),
        (deciding.FOUR, [False, True, False, True]),
        (failover.LIGHT, [True]),
        (failover.HEAVY, [True]),
    ],
)
def test_apps_have_the_groups_that_the_figures_name(text: str, stateful: list[bool]) -> None:
    spec = plan(text.format(name="App")).spec
    assert [group.stateful for group in spec.groups] == stateful
    assert all(group.parallel == 1 for group in spec.groups)


def test_the_channel_of_a_stream_is_found() -> None:
    spec = plan(harness.APP.format(name="App")).spec
    assert harness.channel(spec, "Input") == ("mesh-App-Input", "mesh.App.Input")


def test_a_measurement_that_there_is_not_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "idle,nothing"]) == 2
    assert "no such measurement: nothing" in capsys.readouterr().err


@pytest.mark.nats
def test_outputs_are_counted_as_they_are_stored(nats_server: NatsServer) -> None:
    with Connection(connection_options({"servers": nats_server.url})) as connection:
        config = {"name": "mesh-A-Seen", "subjects": ["mesh.A.Seen", "mesh._marker.mesh-A-Seen.>"]}
        create = ("$JS.API.STREAM.CREATE.mesh-A-Seen", json.dumps(config).encode())
        events = [("mesh.A.Seen", json.dumps({"id": n}).encode()) for n in (0, 1, 1)]
        marker = ("mesh._marker.mesh-A-Seen.p", b"{}")
        for call in (create, *events, marker):
            connection.riding("storing", partial(connection.requests, [call]))
    assert failover._stored(nats_server.url, "A") == [0, 1, 1]
