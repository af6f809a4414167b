"""From the arguments of a bound window to its operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.functions.cron import Cron
from mesh.operators.windows import external_batch, queue, sliding, tumbling
from mesh.operators.windows import machine as m
from mesh.operators.windows.cron import CronBatch
from mesh.operators.windows.followed import FollowedWindow
from mesh.operators.windows.frequent import Frequent, LossyFrequent, keys_of
from mesh.operators.windows.keyed import KeyedWindow, Plan, WindowOperator
from mesh.operators.windows.plain import PlainWindow
from mesh.operators.windows.ranked import Ranked, sort_keys
from mesh.operators.windows.sessions import Sessions, session_keys
from mesh.plan.bound import Constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from mesh.plan.bound import Window

    Maker = Callable[[Window, "Needs"], WindowOperator]


@dataclass(frozen=True, slots=True)
class Needs:
    """What a window is made for: see ``make_window``."""

    schema: pa.Schema
    timer_path: int
    expired: bool
    used: Sequence[str | None]
    followed: bool


def _number(window: Window, index: int, default: int = 0) -> int:
    """The whole number or truth value at ``index``."""
    if index >= len(window.arguments):
        return default
    argument = window.arguments[index]
    assert isinstance(argument, Constant), "the planner takes no attribute here"
    return int(argument.value or 0)


def _column(window: Window, index: int) -> str:
    argument = window.arguments[index]
    assert not isinstance(argument, Constant), "the planner takes no constant here"
    return argument.name


def _keyed(make_plan: Callable[[Window], Plan]) -> Maker:
    def make(window: Window, needs: Needs) -> WindowOperator:
        kind = FollowedWindow if needs.followed else KeyedWindow
        return kind(make_plan(window), needs.schema, needs.timer_path, needs.expired)

    return make


def _length(window: Window) -> Plan:
    return Plan(sliding.length_loop, (_number(window, 0),), queue=queue.length_queue, lines=3)


def _time(window: Window) -> Plan:
    return Plan(
        sliding.time_loop,
        (_number(window, 0),),
        sliding.LATEST + 1,
        sliding.LATEST_START,
        queue=queue.time_queue,
        latest=sliding.LATEST,
    )


def _delay(window: Window) -> Plan:
    return Plan(sliding.delay_loop, (_number(window, 0),), sliding.LATEST + 1, sliding.LATEST_START)


def _external_time(window: Window) -> Plan:
    return Plan(
        sliding.external_time_loop,
        (_number(window, 1),),
        columns=(_column(window, 0),),
        queue=queue.external_time_queue,
    )


def _time_length(window: Window) -> Plan:
    arguments = (_number(window, 0), _number(window, 1))
    return Plan(sliding.time_length_loop, arguments, listed=(m.B_HEAD,))


def _length_batch(window: Window) -> Plan:
    size, streams = _number(window, 0), _number(window, 1)
    return Plan(
        tumbling.length_batch_loop,
        (size, streams),
        m.OWN + 2,
        is_batch=True,
        finds=m.B_HEAD,
        batch_rows=0 if streams else size,
    )


def _time_batch(window: Window) -> Plan:
    span, start, streams = _number(window, 0), None, False
    for index in range(1, len(window.arguments)):
        argument = window.arguments[index]
        assert isinstance(argument, Constant), "the planner takes no attribute here"
        if isinstance(argument.value, bool):
            streams = argument.value
        else:
            start = _number(window, index)
    return Plan(
        tumbling.time_batch_loop,
        (span, start is not None, start or 0, streams),
        m.OWN + 2,
        is_batch=True,
        finds=m.B_HEAD,
    )


def _batch(window: Window) -> Plan:
    return Plan(
        tumbling.batch_loop, (_number(window, 0),), m.OWN + 2, is_batch=True, finds=m.B_HEAD
    )


def _external_time_batch(window: Window) -> Plan:
    start = window.arguments[2] if len(window.arguments) > 2 else None
    kind = 0 if start is None else 1 if isinstance(start, Constant) else 2
    replaces = _number(window, 4)
    arguments = (
        _number(window, 1),
        kind,
        _number(window, 2) if kind == 1 else 0,
        _number(window, 3),
        replaces,
    )
    return Plan(
        external_batch.external_time_batch_loop,
        arguments,
        external_batch.REGISTERS,
        external_batch.BEGIN,
        is_batch=True,
        finds=m.B_HEAD,
        columns=(_column(window, 0), *((_column(window, 2),) if kind == 2 else ())),
        replaces=replaces != 0,
    )


def _sort(window: Window, needs: Needs) -> WindowOperator:
    size = _number(window, 0)
    by: list[tuple[str, bool]] = []
    for argument in window.arguments[1:]:
        if isinstance(argument, Constant):
            by[-1] = (by[-1][0], str(argument.value).lower() == "desc")
        else:
            by.append((argument.name, False))
    return PlainWindow(lambda: Ranked(size), sort_keys(by), needs.schema, needs.timer_path)


def _frequent(window: Window, needs: Needs) -> WindowOperator:
    size = _number(window, 0)
    keys = _keys(window, 1, needs)
    return PlainWindow(lambda: Frequent(size), keys, needs.schema, needs.timer_path)


def _lossy(window: Window, needs: Needs) -> WindowOperator:
    support, error = (_share(window, k) for k in range(2))
    keys = _keys(window, 2, needs)
    return PlainWindow(lambda: LossyFrequent(support, error), keys, needs.schema, needs.timer_path)


def _keys(
    window: Window, first: int, needs: Needs
) -> Callable[[pa.RecordBatch], Sequence[list[str]]]:
    """What tells events apart: the attributes from argument ``first`` on, or all that are used."""
    named = [_column(window, index) for index in range(first, len(window.arguments))]
    return keys_of(named or needs.used)


def _share(window: Window, index: int) -> float:
    argument = window.arguments[index]
    assert isinstance(argument, Constant), "the planner takes no attribute here"
    return float(argument.value or 0)


def _session(window: Window, needs: Needs) -> WindowOperator:
    gap, latency = _number(window, 0), _number(window, 2)
    keys = session_keys(_column(window, 1) if len(window.arguments) > 1 else None)
    return PlainWindow(lambda: Sessions(gap, latency), keys, needs.schema, needs.timer_path)


def _cron(window: Window, needs: Needs) -> WindowOperator:
    (argument,) = window.arguments
    assert isinstance(argument, Constant), "the planner takes no attribute here"
    schedule = Cron(str(argument.value))
    return PlainWindow(lambda: CronBatch(schedule), lambda rows: [], needs.schema, needs.timer_path)


#: Windows that a selector may follow, by name: whether what they put out is a batch to the engine.
FOLLOWED = {
    "batch": True,
    "externalTime": False,
    "externalTimeBatch": True,
    "length": False,
    "lengthBatch": True,
    "time": False,
    "timeBatch": True,
    "timeLength": False,
}
#: By the window's name, what makes its operator.
PLANS: dict[str, Maker] = {
    "batch": _keyed(_batch),
    "cron": _cron,
    "delay": _keyed(_delay),
    "externalTime": _keyed(_external_time),
    "externalTimeBatch": _keyed(_external_time_batch),
    "frequent": _frequent,
    "length": _keyed(_length),
    "lengthBatch": _keyed(_length_batch),
    "lossyFrequent": _lossy,
    "session": _session,
    "sort": _sort,
    "time": _keyed(_time),
    "timeBatch": _keyed(_time_batch),
    "timeLength": _keyed(_time_length),
}
