"""Processes of a session: what they may run."""

from __future__ import annotations

from pathlib import Path

from mesh.functions import script_switch
from mesh.settings import FunctionSettings, NatsSettings, Settings
from mesh.worker import store_secrets
from mesh.worker.children import environment_of
from mesh.worker.protocol import SessionConfig


def test_a_session_and_its_children_run_functions_only_where_they_are_allowed() -> None:
    for is_allowed in (True, False):
        nats = NatsSettings(password="in no environment")
        settings = Settings(nats=nats, functions=FunctionSettings(python=is_allowed))
        found = environment_of(SessionConfig("w1", "", settings))
        assert nats.password not in str(found)
        stored = Path(found[store_secrets.SETTINGS_VARIABLE])
        assert stored.stat().st_mode & 0o777 == 0o600
        assert nats.password in stored.read_text()
        assert found[script_switch.SWITCH] == str(is_allowed).lower()
        assert "MESH_SESSION" not in found
