"""The environment and the working directory of this process, for one test."""

from __future__ import annotations

import contextlib
import os
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


#: Environment variables of this process.
Variables = MutableMapping[str, str]


@pytest.fixture
def environment() -> Iterator[Variables]:
    """The environment of this process, which the test may change: it is restored afterwards."""
    before = dict(os.environ)
    yield os.environ
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def alone(environment: Variables, tmp_path: Path) -> Iterator[Path]:
    """A directory and an environment without a cluster's context."""
    environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    environment["COLUMNS"] = "200"
    for name in ("SERVER", "USER", "PASSWORD", "TOKEN", "CA", "NATS_URL", "CONTEXT"):
        environment.pop(f"MESH_{name}", None)
    with contextlib.chdir(tmp_path):
        yield tmp_path
