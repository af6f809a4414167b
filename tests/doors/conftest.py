"""Servers of other systems; each starts once, when the first test asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka import Kafka


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka-compatible broker."""
    from tests.support.kafka import broker

    with broker(tmp_path_factory.mktemp("kafka") / "data") as found:
        yield found
