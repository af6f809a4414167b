"""Fixtures of the tests of Spark's queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.settings import TraceSettings
from mesh.telemetry import traces
from tests.support.collector import Collector, collecting

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector for the spans of this process and its children."""
    with collecting() as server:
        for name, value in traces.variables(TraceSettings(server.endpoint), "w1").items():
            monkeypatch.setenv(name, value)
        yield server
        traces.close()
