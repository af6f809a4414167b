"""Servers of other systems; each starts once, when the first test asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.permissions import write_accounts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import DatabaseServer
    from tests.support.dovecot import Mailboxes
    from tests.support.kafka import Kafka


@pytest.fixture
def nats_arguments(tmp_path: Path) -> list[str]:
    """A server whose login of connectors may do what `mesh nats-config` lets it, and no more."""
    return write_accounts(tmp_path / "accounts.conf", with_everybody=True)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka-compatible broker."""
    from tests.support.kafka import broker

    with broker(tmp_path_factory.mktemp("kafka") / "data") as found:
        yield found


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real MQTT broker."""
    from tests.support.mosquitto import broker

    with broker(tmp_path_factory.mktemp("mosquitto")) as url:
        yield url


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a real RabbitMQ server."""
    from tests.support.rabbitmq import server

    with server(tmp_path_factory.mktemp("rabbitmq")) as uri:
        yield uri


@pytest.fixture(scope="session")
def dovecot() -> Iterator[Mailboxes]:
    """A real IMAP server."""
    from tests.support.dovecot import server

    with server() as found:
        yield found


@pytest.fixture(scope="session")
def postgresql() -> Iterator[DatabaseServer]:
    """A real PostgreSQL."""
    from tests.support import databases

    with databases.postgresql() as running:
        yield running


@pytest.fixture(scope="session")
def mariadb() -> Iterator[DatabaseServer]:
    """A real MariaDB."""
    from tests.support import databases

    with databases.mariadb() as running:
        yield running


@pytest.fixture(scope="module")
def ftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of an FTP server, and its directory."""
    from tests.support.ftp import server

    directory = tmp_path_factory.mktemp("ftp")
    with server(directory) as url:
        yield url, directory
