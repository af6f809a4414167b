"""Slots in threads of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.model.cluster import InstanceState
from tests.support.own_slots import Mesh, QueryWithoutSpark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.model.cluster import InstanceStatus
    from tests.support.shared_query import Hand


@pytest.fixture
def shared(tmp_path: Path, hand: Hand) -> Iterator[QueryWithoutSpark]:
    made = QueryWithoutSpark(tmp_path / "shared", hand)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def mesh(tmp_path: Path, hand: Hand, shared: QueryWithoutSpark) -> Mesh:
    made = Mesh(tmp_path / "instances", hand, shared)
    hand.make(made.spec)
    return made


def is_retried(told: list[InstanceStatus], why: str) -> bool:
    """Whether an instance has reported that it will start again after this error."""
    return any(one.state is InstanceState.RETRYING and why in str(one.error) for one in told)
