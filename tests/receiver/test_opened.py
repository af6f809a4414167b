"""Addresses of connectors as people see them."""

from __future__ import annotations

import pytest

from mesh.receiver.opened import endpoint_of


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://ann:pw@host/in?token=S", "http://host/in"),
        ("http://host/in;token=S", "http://host/in"),
        ("http://host/in#S", "http://host/in"),
        ("jdbc:sqlserver://host;user=ann;password=S", "jdbc:sqlserver://host"),
        ("postgresql://host/db password=S", "postgresql://host/db"),
        ("http://ann:p;w@host/in", "http://"),
        ("http://ann:p?w@host/in", "http://"),
        ("http://host:80/in?mail=ann@example.org", "http://host:80/in"),
        ("http://{{h}}:{{p}}/in", "http://{{h}}:{{p}}/in"),
        ("http://[::1]:80/in", "http://[::1]:80/in"),
        ("nats://one:4222,nats://two:4223", "nats://one:4222,nats://two:4223"),
        ("nats://a:b@one,nats://c:d@two", "nats://two"),
        ("/srv/in#1; old.csv", "/srv/in#1; old.csv"),
        ("orders.#", "orders.#"),
        ("host", "host"),
    ],
)
def test_an_address_has_no_login_and_no_parameters(address: str, shown: str) -> None:
    assert endpoint_of({"url": address}) == shown


def test_a_host_is_shown_with_its_port() -> None:
    assert endpoint_of({"host": "0.0.0.0", "port": "9892"}) == "0.0.0.0:9892"
    assert endpoint_of({"host": "::1", "port": 514}) == "[::1]:514"
