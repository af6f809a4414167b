"""Metrics of a worker: sizes of stored states by instance and element, and the levels of apps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mesh.model.cluster import StatisticsLevel
from mesh.operators.base import State
from mesh.spark.local_state import LocalState
from mesh.worker.metrics import Placed, WorkerValues, element_of, exposition, state_sizes

if TYPE_CHECKING:
    from pathlib import Path

BATCH = pa.record_batch({"a": list(range(100))})


def stored(path: Path, *pieces: str) -> int:
    """Store a state with these pieces; the bytes of one."""
    local = LocalState(path)
    local.put_pieces(State(dict.fromkeys(pieces, BATCH)))
    return local.piece_path(pieces[0]).stat().st_size


@pytest.mark.parametrize(
    ("piece", "element"),
    [
        ("tables/Seen/rows", ("table", "Seen")),
        ("window-Last/rows", ("window", "Last")),
        ("aggregation-Sums/day", ("aggregation", "Sums")),
        ("sums/window/3", ("query", "sums")),
    ],
)
def test_a_piece_belongs_to_an_element(piece: str, element: tuple[str, str]) -> None:
    assert element_of(piece) == element


def test_sizes_are_those_of_the_newest_run_of_the_epoch(tmp_path: Path) -> None:
    root = tmp_path / "A-g-1"
    stored(root / "4-0" / "0", "old/rows")
    stored(root / "5-0" / "0", "earlier/rows")
    for path in (root / "5-0").rglob("*.arrow"):
        os.utime(path, ns=(1, 1))
    size = stored(root / "apart-1" / "5-1" / "0", "sums/rows", "sums/more", "tables/Seen/rows")
    stored(root / "apart-1" / "5-1" / "1", "tables/Seen/rows")
    assert state_sizes(tmp_path, "A-g-1", 5) == {
        ("query", "sums"): 2 * size,
        ("table", "Seen"): 2 * size,
    }
    assert state_sizes(tmp_path, "A-g-1", 6) == {}
    assert state_sizes(tmp_path, "B-g-1", 5) == {}


def test_levels_decide_on_what_is_told(tmp_path: Path) -> None:
    levels = {"Off": StatisticsLevel.OFF, "Basic": StatisticsLevel.BASIC}
    levels["Detail"] = StatisticsLevel.DETAIL
    for app in levels:
        size = stored(tmp_path / f"{app}-g-1" / "5-0" / "0", "sums/rows")
    placed = [Placed(app, "g", f"{app}-g-1", 5, level) for app, level in levels.items()]
    text = exposition(WorkerValues("w1", True, placed, tmp_path, None, {"gc_s": 1.5})).decode()
    for app, has_whole in (("Off", False), ("Basic", True), ("Detail", True)):
        labels = f'app="{app}",group="g",instance="{app}-g-1"'
        assert (f"mesh_instance_state_bytes{{{labels}}} {size:.1f}" in text) is has_whole
        element = f'mesh_element_state_bytes{{{labels},kind="query",element="sums"}}'
        wanted = app == "Detail"
        assert (element in text or _sorted(element) in text) is wanted
    assert "mesh_jvm_gc_seconds_total 1.5" in text
    assert "mesh_jvm_heap_used_bytes" not in text
    assert 'mesh_worker_processes{kind="agent"} 1.0' in text


def _sorted(sample: str) -> str:
    """The labels in alphabetical order, as the client library writes them."""
    name, _, rest = sample.partition("{")
    return f"{name}{{{','.join(sorted(rest.rstrip('}').split(',')))}}}"
