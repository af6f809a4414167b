"""A trial run of a part, in a process of its own: computes messages and publishes nothing.

``mesh.spark.repeated_failures`` calls it to find the message at which a group fails.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.spark import sink_rows
from mesh.spark.live_partition import executor_of
from mesh.spark.shared_query import members, pacing, task
from mesh.spark.shared_query.members import WORK, WorkItem
from mesh.spark.shared_query.part_position import PartPosition
from mesh.store.sources import shard
from pyspark_nats.errors import ConnectorError
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import messages_out
from pyspark_nats.source import batches, planning

if TYPE_CHECKING:
    from mesh.spark.instance_io import InstanceIO, RefusedMessage
    from mesh.spark.repeated_failures import Trial
    from mesh.spark.shared_query.members import InputPartition, Member, Offsets


def look(trial: Trial, at: Offsets | None, rows: int) -> tuple[Offsets, Offsets]:
    """The position ``at`` in full, and the one after at most ``rows`` messages.

    Raises:
        MeshError: MESH-S113 for a group that writes to a database.
    """
    member, part = _part(trial, trial.io)
    is_first = at is None and member.io.group.stateful
    if is_first and executor_of(member.io, int(part.key), shard()).stores:
        raise MeshError("MESH-S113", "a trial run would write to a database")
    with Connection(member.sink.connection) as asks:
        place = PartPosition(member, part)
        place.observe(asks)
        begin = {**place.at, **(at or {})}
        # A copy: ``latest_now`` gives the same dictionary again if there is nothing new.
        ends = dict(place.watch.latest_now(begin, pacing.limited(part.options.limits, rows)))
    return begin, ends


def run(
    trial: Trial,
    at: Offsets,
    ends: Offsets,
    refused: tuple[RefusedMessage, ...],
    keeps: bool,  # a process passes arguments by their places
) -> str:
    """Compute the messages between two positions; the failure, empty for none.

    Args:
        trial: the part.
        at: its state is stored there.
        ends: the position afterwards.
        refused: messages that are left out, and recorded.
        keeps: whether the state is stored at ``ends``.

    Raises:
        ConnectorError: the messages can't be read, which is no fault of theirs.
        MeshError: the state is missing.
    """
    member, part = _part(trial, replace(trial.io, refused=refused))
    with Connection(member.sink.connection) as asks:
        (planned,) = planning.partitions(part.options, asks, at, ends)
        assert isinstance(planned, planning.NatsPartition)
        room = messages_out.room(asks)
    item = WorkItem(WORK, member, part, planned.ranges, ends)
    form = replace(part.form, has_markers=False)
    done = task.PartRun()
    try:
        rows = batches.read(part.options, form, item.ranges)
        output = task.rows_of(item, rows, done)
        deque(sink_rows.within_size(member.io, output, room), maxlen=0)
        if keeps and done.live is not None:
            done.live.store()
    except (ConnectorError, MeshError):
        raise
    # Whatever it is: this is what the trial is for.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _part(trial: Trial, io: InstanceIO) -> tuple[Member, InputPartition]:
    member = members.member(
        io,
        0,
        Path(trial.directory),
        nats=trial.nats,
        starts={} if trial.start is None else {trial.key: trial.start},
        restored=frozenset([trial.key] if trial.is_restored else []),
        message=trial.message,
    )
    return member, next(part for part in member.parts if part.key == trial.key)
