"""The parts of `mesh install`: all that comes with the wheel is written; nothing is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.cli.install import texts_of
from mesh.files import shipped
from tests.support.mesh_command import mesh
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_every_part_is_listed_and_written(tmp_path: Path) -> None:
    listed = mesh("install").output
    for part in shipped.PARTS:
        assert f" {part.name} " in listed
        files = texts_of(part)
        said = mesh("install", part.name).output.splitlines()
        assert said[:-1] == list(files)
        mesh("install", part.name, "--write", str(tmp_path / part.name))
        for name, text in files.items():
            assert (tmp_path / part.name / name).read_text("utf-8") == text
    for name in (
        "grafana/mesh.json", "prometheus/rules.yml", "kubernetes/base/kustomization.yaml",
        "editor/siddhiql.tmLanguage.json", "docs/siddhiql.md", "settings/mesh.yaml",
        "man/man1/mesh-deploy.1", "examples/orders.siddhi",
    ):  # fmt: skip
        assert (tmp_path / name).stat().st_size > 0
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o644


def test_a_file_that_differs_is_kept_unless_forced(tmp_path: Path) -> None:
    write = ("install", "grafana", "--write", str(tmp_path))
    file = tmp_path / "mesh.json"
    assert mesh(*write, "--dry-run").output == f"would write {file}\n"
    assert not file.exists()
    assert mesh(*write).output == f"wrote {file}\n"
    assert mesh(*write).output == f"unchanged {file}\n"
    file.write_text("{}")
    assert mesh(*write).output == f"kept {file}, which differs; --force replaces it\n"
    assert mesh(*write, "--force").output == f"wrote {file}\n"
    assert file.read_bytes() == (ROOT / "conf" / "grafana" / "mesh.json").read_bytes()


def test_a_part_that_is_none_and_a_folder_without_a_role_are_refused(tmp_path: Path) -> None:
    ended = mesh("install", "graphana")
    assert ended.exit_code == 2
    assert '"graphana" is none of docs, man, ' in " ".join(ended.stderr.split())
    (tmp_path / "a").write_text("")
    ended = mesh("install", "grafana", "--write", str(tmp_path / "a"))
    assert "[MESH-U182]" in ended.stderr
