"""A cluster of three servers, and rows to send through faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_nats.protocol import connection_options
from pyspark_nats.protocol.connection import Connection
from tests.pyspark_nats.faults.query import Driver
from tests.support.broker import Broker
from tests.support.nats_cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.pyspark_nats.faults.query import Setup


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three servers that form a cluster."""
    made = Cluster(tmp_path / "cluster")
    yield made
    made.stop()


@pytest.fixture
def cluster_broker(cluster: Cluster) -> Iterator[Broker]:
    """A connection to the cluster, which finds another server when one is gone."""
    given = {"servers": cluster.urls(), "timeoutS": "40"}
    made = Broker(cluster.urls(), Connection(connection_options.connection_options(given)))
    yield made
    made.connection.close()


@pytest.fixture
def start() -> Iterator[Callable[[Setup], Driver]]:
    """Start a driver that ends with the test."""
    started: list[Driver] = []

    def begin(setup: Setup) -> Driver:
        started.append(Driver(setup))
        return started[-1]

    yield begin
    for driver in started:
        driver.kill()
