"""Apps that the bench of the mesh deploys, and its answers without a measurement."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from bench.connector.harness import Figure
from bench.mesh import busy, deciding, failover, harness, scaling, thousand, written
from bench.mesh.__main__ import main
from mesh.control.journal import JournalEntry
from mesh.model.partition import partitions
from mesh.plan.build import plan
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


@pytest.mark.parametrize(
    ("text", "stateful"),
    [
        (harness.APP, [True, False]),
        (deciding.FOUR, [False, True, False, True]),
        (failover.LIGHT, [True]),
        (failover.HEAVY, [True]),
        (thousand.APP, [False]),
    ],
)
def test_apps_have_the_groups_that_the_figures_name(text: str, stateful: list[bool]) -> None:
    spec = plan(text.format(name="App")).spec
    assert [group.stateful for group in spec.groups] == stateful
    assert all(group.parallel == 1 for group in spec.groups)


def test_the_scaled_app_counts_by_key_in_a_group_of_its_own() -> None:
    spec = plan(scaling.APP.format(name="App")).spec
    assert [(g.name, g.parallel) for g in spec.groups if g.stateful] == [("counts", 2)]


def test_a_pause_is_that_of_the_partition_that_stands_still_the_longest() -> None:
    keys = np.repeat(np.arange(1000), 11)
    times_ms = np.tile(np.arange(0, 1100, 100), 1000)
    assert scaling.pause_s(keys, times_ms, 0, 1000) == pytest.approx(0.1)
    # The keys of one partition, 7 among them, are silent from 300 to 800.
    home = partitions([pa.array(keys)], 8)
    is_silent = (home == home[7 * 11]) & (times_ms > 300) & (times_ms < 800)
    assert scaling.pause_s(keys[~is_silent], times_ms[~is_silent], 0, 1000) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("counts", "wrong"),
    [([1, 1, 2, 2, 3, 3], 0), ([1, 1, 2, 3, 4, 4], 2), ([1, 1, 2, 2, 1, 3], 1)],
)
def test_counts_that_are_lost_or_begin_anew_are_seen(counts: list[int], wrong: int) -> None:
    keys = np.array([7, 8, 7, 8, 7, 8])
    assert scaling.discontinuities(keys, np.array(counts)) == wrong


def test_the_channel_of_a_stream_is_found() -> None:
    spec = plan(harness.APP.format(name="App")).spec
    assert harness.channel(spec, "Input") == ("mesh-App-Input", "mesh.App.Input")


def test_a_measurement_that_there_is_not_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "idle,nothing"]) == 2
    assert "no such measurement: nothing" in capsys.readouterr().err


def test_alarms_are_told_from_what_else_the_journal_holds() -> None:
    entries = [
        JournalEntry("leads", by="manager m1", at_ms=1),
        JournalEntry("is ready", "its session started in 3 s", by="worker w1", at_ms=2),
        JournalEntry("stops A-g-1", "no heartbeat was accepted for 1.5 s", by="worker w1", at_ms=3),
        JournalEntry(
            "placed A-g-1 on w2 in epoch 7", "worker w1 is gone", by="manager m1", at_ms=4
        ),
        JournalEntry("no longer leads", by="manager m1", at_ms=5),
        JournalEntry("lost its connection to NATS", by="worker w2", at_ms=6),
    ]
    assert [at_ms for at_ms, _ in busy._alarms(entries)] == [3, 4, 5, 6]


def test_the_table_in_the_docs_is_of_the_newest_results(tmp_path: Path) -> None:
    copy = tmp_path / "operations.md"
    copy.write_text(written.DOCUMENT.read_text())
    written.rewrite(copy)
    assert copy.read_text() == written.DOCUMENT.read_text()


def test_results_become_a_table(tmp_path: Path) -> None:
    def keep(name: str, time: str, value: float) -> None:
        figures = [
            Figure("kill, median", value, "s", 3.0, at_least=False),
            Figure("the same, slowest of 10", value + 2, "s", 5.0, at_least=False),
            Figure("load", 20_000, "events/s", 19_000),
        ]
        told = [dataclasses.asdict(one) | {"is_met": one.is_met} for one in figures]
        (tmp_path / name).write_text(json.dumps({"time": time, "figures": told}))

    keep("mesh-2026-11-20-aa.json", "2026-11-20", 9.0)
    keep("mesh-2026-11-21-bb.json", "2026-11-21", 2.5)
    keep("mesh-3-servers-2026-11-21-bb.json", "2026-11-21", 4.0)
    document = tmp_path / "docs.md"
    document.write_text(f"before\n{written.BEGIN}old\n{written.END}behind\n")
    written.rewrite(document, tmp_path)
    one, three = "mesh-2026-11-21-bb.json", "mesh-3-servers-2026-11-21-bb.json"
    assert document.read_text() == (
        f"before\n{written.BEGIN}"
        "| | one NATS server | three of them | at most |\n"
        "| --- | --- | --- | --- |\n"
        "| kill, median | 2.5 s | 4 s (missed) | 3 s |\n"
        "| kill, slowest of 10 | 4.5 s | 6 s (missed) | 5 s |\n"
        "| load | 20,000 events/s | 20,000 events/s | at least 19,000 events/s |\n"
        f"\nFrom\n\n- [{one}](../bench/results/{one})\n- [{three}](../bench/results/{three})\n"
        f"{written.END}behind\n"
    )


@pytest.mark.nats
def test_outputs_are_counted_as_they_are_stored(nats_server: NatsServer) -> None:
    with Connection(connection_options({"servers": nats_server.url})) as connection:
        config = {"name": "mesh-A-Seen", "subjects": ["mesh.A.Seen", "mesh._marker.mesh-A-Seen.>"]}
        create = ("$JS.API.STREAM.CREATE.mesh-A-Seen", json.dumps(config).encode())
        events = [("mesh.A.Seen", json.dumps({"id": n}).encode()) for n in (0, 1, 1)]
        marker = ("mesh._marker.mesh-A-Seen.p", b"{}")
        for call in (create, *events, marker):
            connection.retry_while_unavailable("storing", partial(connection.requests, [call]))
    assert failover._stored(nats_server.url, "A") == [0, 1, 1]
