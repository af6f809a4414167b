"""``mesh pack`` where it can't work; tests/stack/test_spark_hosts.py packs one."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.cli import pack
from mesh.errors import MeshError


def test_an_environment_that_only_refers_to_the_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    with pytest.raises(MeshError, match="MESH-U190") as caught:
        pack.pack(tmp_path / "env.tar.gz")
    assert "its code is in" in str(caught.value.detail)


def test_what_is_no_virtual_environment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(Path(pack.__file__).parents[2]))
    with pytest.raises(MeshError, match="MESH-U190") as caught:
        pack.pack(tmp_path / "env.tar.gz")
    assert "virtual environment" in str(caught.value.detail)
