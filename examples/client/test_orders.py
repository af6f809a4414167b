"""Tests of an app with pytest: its errors, its plan, and the events that it emits.

    pip install nats-event-mesh pytest
    pytest examples/client/test_orders.py

No cluster is needed.  With one, whose address MESH_SERVER or `mesh dev` says, the last test deploys
the app there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh import client

APP = Path(__file__).parent.parent / "orders.siddhi"
TEXT = """
@App:name('Shop')
define stream Orders (item string, price double);
from Orders[price > 100] select item, price insert into DearOrders;
"""


def test_the_text_is_valid() -> None:
    assert client.validate(APP.read_text()).errors == ()


def test_an_error_has_a_code_and_a_position() -> None:
    (error,) = client.validate(TEXT.replace("item, price", "items")).errors
    assert error.code.startswith("MESH-L")
    assert error.position is not None
    assert error.position.line == 4


def test_it_has_one_group() -> None:
    assert len(client.plan(TEXT)["groups"]) == 1


def test_dear_orders_pass() -> None:
    orders = [
        {"time": 1000, "stream": "Orders", "event": {"item": "lamp", "price": 120.0}},
        {"time": 2000, "stream": "Orders", "event": {"item": "cup", "price": 8.0}},
    ]
    assert client.play(TEXT, orders) == [
        {"time": 1000, "stream": "DearOrders", "event": {"item": "lamp", "price": 120.0}}
    ]


def test_the_app_emits_what_is_recorded_beside_it() -> None:
    assert client.test(APP) == []


def test_it_runs_on_the_cluster() -> None:
    try:
        mesh = client.Client()
    except client.MeshError as error:
        pytest.skip(error.message)
    with mesh:
        mesh.deploy(TEXT)
        assert mesh.wait_running("Shop", timeout_s=60)["state"] == "running"
        with mesh.tap("Shop", "DearOrders") as events:
            mesh.publish("Shop", "Orders", [{"item": "lamp", "price": 120.0}])
            (event,) = events.take(1, timeout_s=20)
        assert event.event == {"item": "lamp", "price": 120.0}
        mesh.undeploy("Shop")
