"""A version is released only where everything that names it agrees."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

import mesh
from tests.support.paths import ROOT
from tools import release

if TYPE_CHECKING:
    from pathlib import Path

HEADING = "## 9.8.7 - 2031-02-03\n"


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A tagged commit of version 9.8.7 with the bills of its images."""
    (tmp_path / "docs").mkdir()
    for name in ("CHANGELOG.md", "docs/changelog.md"):
        (tmp_path / name).write_text(
            f"# Changelog\n\n{HEADING}\n- a line\n\n## 9.8.6 - 2030-01-01\n"
        )
    (tmp_path / ".gitignore").write_text("dist/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(
        tmp_path, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "tests: a"
    )
    git(tmp_path, "tag", "v9.8.7")
    (tmp_path / "dist").mkdir()
    for image in ("manager", "nats", "worker"):
        write_bill(tmp_path, image, "9.8.7")
    return tmp_path


def write_bill(root: Path, image: str, version: str) -> None:
    bill = {"metadata": {"component": {"version": version}}}
    (root / "dist" / f"mesh-{image}.sbom.json").write_text(json.dumps(bill))


def test_one_version_everywhere_is_no_problem(checkout: Path) -> None:
    assert not list(release.problems(checkout, "9.8.7", "9.8.7"))


def test_whatever_differs_is_named(checkout: Path) -> None:
    assert list(release.problems(checkout, "", "9.8.8")) == [
        "make gives images the version '', and the project's is 9.8.8",
        *(
            f"{name}: its first heading is '9.8.7 - 2031-02-03', not '9.8.8 - YYYY-MM-DD'"
            for name in ("CHANGELOG.md", "docs/changelog.md")
        ),
        "the tag v9.8.8 is missing",
        *(
            f"the image mesh-{image} is of version 9.8.7: make images"
            for image in ("manager", "nats", "worker")
        ),
    ]


def test_work_after_the_tag_is_named(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    (checkout / "dist" / "mesh-nats.sbom.json").unlink()
    write_bill(checkout, "worker", "dev")
    assert list(release.problems(checkout, "9.8.7", "9.8.7")) == [
        "CHANGELOG.md: its first heading is 'Unreleased', not '9.8.7 - YYYY-MM-DD'",
        "1 files are not committed",
        "the image mesh-nats has no bill of materials: make images",
        "the image mesh-worker is of version dev: make images",
    ]
    git(
        checkout,
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
        "commit",
        "-qam",
        "tests: b",
    )
    assert "the tag v9.8.7 is at another commit" in release.problems(checkout, "9.8.7", "9.8.7")


def test_make_gives_images_the_version_of_the_project() -> None:
    said = subprocess.run(
        ["make", "-n", "images", "VENV=."], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"--build-arg VERSION=(\S*)", said)) == {mesh.__version__}


def test_the_summary_has_each_version_of_the_changelog() -> None:
    headings = [
        re.findall(r"^## (\S+)", (ROOT / name).read_text("utf-8"), re.MULTILINE)
        for name in ("CHANGELOG.md", "docs/changelog.md")
    ]
    assert mesh.__version__ in headings[0]
    assert {*headings[1]} - {"Unreleased"} <= {*headings[0]}
