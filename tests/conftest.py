"""Fixtures that every test may ask for: a real nats-server of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from mesh import scratch
from mesh.jetstream import server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.agents import Cluster

# One commit has one outcome: examples are drawn alike in every run, and a slow machine fails none.
# `--hypothesis-profile=search` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("same")


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Temporary files of all processes of the tests are below pytest's own directory."""
    path = tmp_path_factory.mktemp("tmp")
    scratch.redirect(path)
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={path} -XX:-UsePerfData"


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[server.NatsServer]:
    """A server with JetStream on a free port, with its own store, gone after the test."""
    running = server.start(tmp_path / "nats")
    yield running
    running.stop()


@pytest.fixture
def cluster(nats_server: server.NatsServer, tmp_path: Path) -> Iterator[Cluster]:
    """Managers and agents on that server, none yet; they end with the test."""
    from tests.agents import Cluster

    found = Cluster(nats_server, tmp_path)
    yield found
    found.end()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--rewrite``: let case files say what came out; commit only a diff that you understand."""
    parser.addoption("--rewrite", action="store_true", help="rewrite expectations of case files")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether case files are to be rewritten with what comes out."""
    return bool(request.config.getoption("--rewrite"))
