"""Queries that feed themselves."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from tests.support.recorder import Log, Recorder


def test_queries_that_feed_themselves_go_in_circles() -> None:
    recorder = Recorder("from S[k < 3] select k + 1 as k, v, s insert into S; "
                        "from S select k insert into O;")  # fmt: skip
    log: Log = {"S": [(1000, [1, 1.0, "a"]), (1000, [2, 1.0, "a"])]}
    recorder.run([recorder.part(log, "S", 0, 2)], {"S": 1000})
    assert [row[3] for row in recorder.rows] == ["[3]", "[2]", "[1]", "[3]", "[2]"]


def test_queries_that_feed_themselves_without_end_are_refused() -> None:
    recorder = Recorder("from S select k, v, s insert into S;")
    log: Log = {"S": [(1000, [1, 1.0, "a"])]}
    with pytest.raises(MeshError) as error:
        recorder.run([recorder.part(log, "S", 0, 1)], {"S": 1000})
    assert error.value.code == "MESH-O104"
