"""Record batches of what is read.

Reports of tasks to the planner, and their cost in the planner's process.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from pyspark_nats.protocol import connection_options
from pyspark_nats.protocol.connection import Connection, shared
from pyspark_nats.source import batches, source_options
from pyspark_nats.source.ranges import StreamRange

pytestmark = pytest.mark.nats


def test_other_subjects_are_skipped_and_batches_are_bounded(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_ROWS_MAX", 100)
    broker.create("S", "ev.S", "ev.other")
    for _ in range(5):
        broker.publish("ev.S", *["a"] * 60)
        broker.publish("ev.other", "b")
    read = source_options.source_options({**broker.given, "stream": "S"})
    shape = batches.RowLayout(batches._Raw(True), False)
    wanted = StreamRange("S", 0, 305, 0, 0, subjects=("ev.S",))
    found = list(batches.read(read, shape, [wanted]))
    assert sum(batch.num_rows for batch in found) == 300
    assert {s for batch in found for s in batch.column("subject").to_pylist()} == {"ev.S"}
    shared(read.connection).close()


_PLANNER = """
import sys
from pyspark_nats.protocol import connection_options
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.source import batches

options = connection_options.connection_options({"servers": sys.argv[1]})
inbox = batches.Inbox(options)
address = inbox.address()
inbox._connection.requests([(inbox._connection.api("INFO"), b"")])
with Connection(options) as task:
    send = lambda: batches.send(task, address, batches.Fetched(7, 700, 1.5))
    task.retry_while_unavailable("reporting", send)
while not inbox.collect().messages:
    pass
inbox.close()
print("pandas" in sys.modules)
"""


def settle(inbox: batches.Inbox) -> None:
    """Return when the server has taken the subscription: reports before it go nowhere."""
    inbox._connection.requests([(inbox._connection.api("INFO"), b"")])


def test_reports_of_the_newest_batch_are_added_up(broker: Any) -> None:
    options = connection_options.connection_options({"servers": broker.url})
    inbox = batches.Inbox(options)
    old = inbox.address()
    address = inbox.address()
    assert old is not None
    assert address is not None
    settle(inbox)
    with Connection(options) as task:
        for where, fetched in (
            (old, batches.Fetched(1000, 1000, 99.0)),
            (address, batches.Fetched(3, 30, 5.0)),
            (address, batches.Fetched(4, 40, 2.5)),
        ):
            task.retry_while_unavailable("reporting", partial(batches.send, task, where, fetched))
        while inbox.collect().messages < 7:
            pass
    assert inbox.collect() == batches.Fetched(7, 70, 5.0)
    inbox.close()


def test_hearing_a_report_makes_no_arrow_arrays(broker: Any) -> None:
    """The first array of a process imports pandas: 0.2 s in the second batch of every query."""
    done = subprocess.run(
        [sys.executable, "-c", _PLANNER, broker.url], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n", done.stderr
