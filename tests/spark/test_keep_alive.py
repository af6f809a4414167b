"""Keep-alive rows: slots serve parts in the batches of a shared query."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mesh.spark.shared_query.keep_alive import KeepAlive
from mesh.spark.shared_query.slot_network import Secret
from pyspark_nats.protocol.connection_options import connection_options

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 2


@pytest.fixture
def keep_alive(tmp_path: Path) -> KeepAlive:
    """Of a session that accepts no slots."""
    nats = connection_options({"servers": "nats://127.0.0.1:1"})
    return KeepAlive(COUNT, str(tmp_path / "no-listener"), str(tmp_path), nats)


def test_a_batch_after_the_end_of_the_session_is_over_at_once(keep_alive: KeepAlive) -> None:
    assert list(keep_alive([pa.record_batch({"value": [COUNT, COUNT + 1]})])) == []


def test_in_the_first_batch_a_session_that_is_not_there_is_an_error(keep_alive: KeepAlive) -> None:
    with pytest.raises(FileNotFoundError):
        list(keep_alive([pa.record_batch({"value": [COUNT - 1]})]))


def test_it_is_pickled_with_its_secret_and_does_not_show_it(keep_alive: KeepAlive) -> None:
    secret = Secret("certificate", "hunter2")
    elsewhere = KeepAlive(COUNT, "host:1", "", keep_alive.connection, secret, 10.0)
    assert pickle.loads(pickle.dumps(elsewhere)) == elsewhere
    assert "hunter2" not in repr(elsewhere)
