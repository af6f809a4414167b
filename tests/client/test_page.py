"""The program of docs/client.md on a cluster of `mesh dev`, and the examples with pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.test_dev import running_dev, whole_tree
from tests.support.pages import passages
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.test_dev import Dev

EXAMPLE = ROOT / "examples" / "client" / "test_orders.py"


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    running = running_dev(tmp_path_factory.mktemp("client"))
    started = next(running)
    started.wait_for("Ctrl-C ends all")
    whole_tree(started)
    yield started
    next(running, None)


def run(arguments: list[str], directory: Path, environment: dict[str, str] | None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(500)
def test_the_page_is_pasted_whole(dev: Dev) -> None:
    blocks = [one.text for one in passages(ROOT / "docs" / "client.md") if one.language == "python"]
    text = "\n".join(blocks)
    shown = re.findall(r"^ *print\(.*\)  # (.+)$", text, re.MULTILINE)
    assert len(shown) == text.count("print(")
    (dev.directory / "page.py").write_text(text)
    assert run(["page.py"], dev.directory, dev.environment).splitlines() == shown


@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(500)
def test_the_example_passes_on_a_cluster(dev: Dev) -> None:
    said = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(EXAMPLE.parent),
                str(EXAMPLE)], dev.directory, dev.environment)  # fmt: skip
    assert "6 passed" in said


@pytest.mark.slow
def test_the_example_passes_without_a_cluster(tmp_path: Path) -> None:
    import os

    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MESH_", "PYTEST_"))}
    environment |= {"XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    said = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(EXAMPLE.parent),
                str(EXAMPLE)], tmp_path, environment)  # fmt: skip
    assert "5 passed, 1 skipped" in said
