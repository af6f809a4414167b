"""Fixtures that every test may ask for: a real nats-server of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.jetstream import server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[server.NatsServer]:
    """A server with JetStream on a free port, with its own store, gone after the test."""
    running = server.start(tmp_path / "nats")
    yield running
    running.stop()
