"""On-demand changes of tables among the messages of an instance's input, as input of its operators.

A manager publishes them beside the events of one of the inputs (``names.change_subject``).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson
import pyarrow as pa

from mesh.operators.dataflow.merge import CHANGE_SCHEMA, CHANGES
from mesh.operators.executor import InputRun
from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from mesh.spark.live_partition import StreamClock

_EARLY: Final = "no event has come yet that says what time it is"


def split(
    messages: pa.RecordBatch, is_event: npt.NDArray[np.bool_], subject: str
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    """The events before each change, which are its messages of ``subject``, and the change.

    The last are the events after all changes, with None.  Other messages are markers.
    """
    mask = kernels.equal(messages.column("subject"), subject).to_numpy(zero_copy_only=False)
    at = np.flatnonzero(mask).tolist()
    for start, stop in pairwise([-1, *at, messages.num_rows]):
        part = slice(start + 1, stop)
        events = messages.slice(start + 1, stop - start - 1).filter(pa.array(is_event[part]))
        yield events, messages.slice(stop, 1) if stop < messages.num_rows else None


def change_run(
    message: pa.RecordBatch, clock: StreamClock, *, is_alone: bool, plays_back: bool
) -> InputRun | None:
    """A change as input of the operators; None for a message that is none.

    Args:
        message: one row of the source.
        clock: of the stream beside whose events it is.  A change is as late as the last of these
            if they have times of their own, and has the broker's time otherwise.
        is_alone: whether the group reads this stream only.  Otherwise its clock starts, as with an
            event, for a change waits until all streams are past its time.
        plays_back: whether time is that of the events, which a change must not start.
    """
    try:
        values = orjson.loads(message.column("data")[0].as_py())
        id_, query = str(values["id"]), str(values["query"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    time_ms = message.column("time_ms").to_numpy()
    refusal = None
    if clock.by_events:
        time_ms = np.array([clock.now_ms])
    elif not is_alone and (clock.is_started or not plays_back):
        clock.take(time_ms, False)
    elif not is_alone:
        time_ms, refusal = np.array([0]), _EARLY
    row = pa.RecordBatch.from_pylist(
        [{"id": id_, "query": query, "refusal": refusal}], CHANGE_SCHEMA
    )
    return InputRun(CHANGES, message.column("sequence").to_numpy(), time_ms, row)
