"""A cluster on this machine: its directory and its ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.cli import local, local_nats
from mesh.errors import MeshError
from mesh.settings import Settings
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_two_clusters_do_not_share_a_directory(tmp_path: Path) -> None:
    held = local._lock(tmp_path)
    assert local.in_use(tmp_path)
    with pytest.raises(MeshError, match="in use"):
        local.start(local.LocalPlan(tmp_path, 1, Settings()))
    held.close()
    assert not local.in_use(tmp_path)


def test_a_first_start_has_the_ports_of_the_readme_and_later_ones_those_of_the_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken: set[int] = set()
    monkeypatch.setattr(local_nats, "is_free", lambda port: port not in taken)
    assert local._port("NATS", None, 0, local_nats.NATS_PORT) == (4222, "")
    assert local._port("NATS", None, 12_345, local_nats.NATS_PORT) == (12_345, "")
    assert local._port("NATS", 0, 12_345, local_nats.NATS_PORT) == (0, "")
    taken |= {4222, 12_345}
    assert local._port("NATS", None, 0, local_nats.NATS_PORT) == (0, "")
    note = "port 12345 of NATS is in use; this start has another one"
    assert local._port("NATS", None, 12_345, local_nats.NATS_PORT) == (0, note)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"publisher:PASSWORD@127.0.0.1:{local_nats.NATS_PORT} " in readme
    assert f"https://localhost:{local_nats.API_PORT}/siddhi-apps" in readme
