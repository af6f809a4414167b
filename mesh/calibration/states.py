"""State of a group by its number of keys: its operators over random events of few of them.

The events of a key come as often as they will with all keys, so a time window of a key holds as
much.  Two numbers of keys are run until the state no longer grows; their difference gives the bytes
of a key.  A state that still grows then, as that of a long window does, gives the bytes of an event
instead.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np

from mesh.calibration.sample import Sampler, hints_of
from mesh.model.cost import StateCost
from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind.group import bind_group
from mesh.spark.live_partition import LivePartition
from mesh.spark.stream_clock import StreamClock

if TYPE_CHECKING:
    from mesh.calibration.sample import Hints
    from mesh.model.app import GroupSpec

#: Numbers of keys that are compared.
_FEW: Final = 100
_MORE: Final = 200
_ROWS: Final = 5_000
#: Rounds over which growth is seen, and the part of the state that is none.
_ROUNDS: Final = 4
_STEADY: Final = 0.02
#: Of one number of keys.
_EVENTS_MAX: Final = 400_000
_TIME_MAX_S: Final = 4.0
_START_MS: Final = 1_800_000_000_000


def state_cost(group: GroupSpec, rate: float, keys: int) -> StateCost:
    """The state of one group with state.

    Args:
        group: of the plan; without tables in databases.
        rate: events that it reads in a second, of all keys.
        keys: of all events.
    """
    hints = hints_of(group.text)
    few, more = min(_FEW, max(1, keys // 2)), min(_MORE, keys)
    less = _measured(group, hints, rate * few / keys, few)
    if more <= few:
        return StateCost(base_bytes=less[0], event_bytes=less[1], longest_s=hints.longest_s)
    most = _measured(group, hints, rate * more / keys, more)
    key_bytes = max(0.0, (most[0] - less[0]) / (more - few))
    if most[1] > 0:
        # It holds events, whatever their keys.
        return StateCost(event_bytes=most[1], longest_s=hints.longest_s)
    return StateCost(key_bytes, max(0.0, less[0] - few * key_bytes), 0.0, hints.longest_s)


def _measured(group: GroupSpec, hints: Hints, rate: float, keys: int) -> tuple[float, float]:
    """Bytes of the state with so many keys, and those that each further event adds."""
    executor = Executor(
        bind_group(group), [*dict.fromkeys(c.stream.name for c in group.outputs), FAILED]
    )
    streams = {i.channel.stream.name: i.channel.stream for i in group.inputs}
    samplers = {
        name: Sampler(schema, hints, keys, seed=number)
        for number, (name, schema) in enumerate(streams.items())
    }
    partition = LivePartition(executor, {name: StreamClock() for name in streams})
    sizes, done, ends_s = [0], 0, time.monotonic() + _TIME_MAX_S
    while done < _EVENTS_MAX and time.monotonic() < ends_s:
        runs = []
        for name, sampler in samplers.items():
            sequence = np.arange(done, done + _ROWS, dtype=np.int64)
            time_ms = _START_MS + (sequence * 1000.0 * len(streams) / rate).astype(np.int64)
            partition.clocks[name].take(time_ms, last_has_time=True)
            runs.append(InputRun(name, sequence, time_ms, sampler.rows(_ROWS)))
        executor.run(runs, partition.times(), is_by_events=True)
        done += _ROWS
        sizes.append(stored_bytes(executor))
        if len(sizes) > 2 * _ROUNDS and _growth(sizes) <= _STEADY * sizes[-1]:
            return float(sizes[-1]), 0.0
    return float(sizes[-1]), _growth(sizes) / (_ROUNDS * _ROWS * len(streams))


def _growth(sizes: list[int]) -> float:
    # The mean of some rounds: pieces are written when they are full.
    late, early = sizes[-_ROUNDS:], sizes[-2 * _ROUNDS : -_ROUNDS] or [0]
    return max(0.0, sum(late) / len(late) - sum(early) / len(early))


def stored_bytes(executor: Executor) -> int:
    """Bytes of an executor's state as it is stored."""
    return sum(piece.nbytes for piece in executor.snapshot().pieces.values())
