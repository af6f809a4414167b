"""Databases of the tests of stores: each server is started once, each test has its own database."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from mesh.model.stored import Backend
from tests.support import databases
from tests.support.trades import end_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import DatabaseServer, TestDatabase

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[DatabaseServer]:
    with databases.postgresql() as running:
        yield running


@pytest.fixture(scope="session")
def mariadb() -> Iterator[DatabaseServer]:
    with databases.mariadb() as running:
        yield running


@pytest.fixture(
    params=[
        Backend.SQLITE,
        Backend.POSTGRESQL,
        pytest.param(Backend.MYSQL, marks=pytest.mark.thorough),
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TestDatabase:
    """A new database of each kind."""
    names = {Backend.POSTGRESQL: "postgresql", Backend.MYSQL: "mariadb"}
    name = names.get(request.param)
    running = None if name is None else request.getfixturevalue(name)
    return databases.new_database(running, tmp_path, f"test{next(_numbers)}")


@pytest.fixture(scope="session")
def redis() -> Iterator[DatabaseServer]:
    with databases.redis() as running:
        yield running


@pytest.fixture
def in_redis(redis: DatabaseServer, tmp_path: Path) -> TestDatabase:
    """A new database of Redis."""
    return databases.new_database(redis, tmp_path, "")


@pytest.fixture(
    params=[
        Backend.SQLITE,
        Backend.POSTGRESQL,
        Backend.REDIS,
        pytest.param(Backend.MYSQL, marks=pytest.mark.thorough),
    ]
)
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> TestDatabase:
    """A new database of each kind, with SQL or without."""
    names = {Backend.POSTGRESQL: "postgresql", Backend.MYSQL: "mariadb", Backend.REDIS: "redis"}
    name = names.get(request.param)
    running = None if name is None else request.getfixturevalue(name)
    return databases.new_database(running, tmp_path, f"any{next(_numbers)}")


@pytest.fixture
def ended_partitions() -> Iterator[None]:
    """Partitions of the task in this process end with the test."""
    yield
    end_partitions()
