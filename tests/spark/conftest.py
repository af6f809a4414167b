"""Fixtures of the tests of Spark's queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.settings import TraceSettings
from mesh.telemetry import traces
from tests.support.collector import Collector, collecting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.environment import Variables


@pytest.fixture
def collector(environment: Variables) -> Iterator[Collector]:
    """A collector for the spans of this process and its children."""
    with collecting() as server:
        environment.update(traces.variables(TraceSettings(server.endpoint), "w1"))
        yield server
        traces.close()
