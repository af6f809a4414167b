"""Registry of windows: for each kind its signature, its maker and the properties that others use.

To add a window: write its operator, add one entry to ``WINDOWS``, and declare its signature in
``mesh.functions.catalogue``.  No other module names a window; a test asserts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.functions import catalogue
from mesh.functions.cron import Cron
from mesh.operators.windows import external_batch, row_ref_window, sliding, tumbling
from mesh.operators.windows import window_loop as m
from mesh.operators.windows.extremes_by import (
    ExtremeByLength,
    ExtremeByLengthBatch,
    ExtremeByTime,
    ExtremeByTimeBatch,
    SortWindow,
    extreme_keys,
    sort_keys,
)
from mesh.operators.windows.frequent import Frequent, LossyFrequent, keys_of
from mesh.operators.windows.java_hash_order import places, spread
from mesh.operators.windows.kind import TickOrder, WindowContext, WindowKind
from mesh.operators.windows.native_window import NativeWindow, WindowSpec
from mesh.operators.windows.python_window import PythonWindow
from mesh.operators.windows.row_ref_window import RowRefWindow
from mesh.operators.windows.session import Sessions, session_keys
from mesh.operators.windows.tumbling import CronBatch, Hopping
from mesh.operators.windows.unique import (
    UniqueEver,
    UniqueExternalTimeBatch,
    UniqueFirst,
    UniqueLength,
    UniqueLengthBatch,
    UniqueTime,
    UniqueTimeBatch,
    UniqueTimeLengthBatch,
)
from mesh.plan.bound import Constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from mesh.operators.windows.contents import WindowContents
    from mesh.operators.windows.kind import Maker, WindowOperator
    from mesh.plan.bound import Window


# Arguments


def _constant(window: Window, index: int) -> Constant:
    argument = window.arguments[index]
    assert isinstance(argument, Constant), "the planner accepts no attribute here"
    return argument


def _integer(window: Window, index: int) -> int:
    """The integer or truth value at ``index``; 0 if it is left out."""
    return int(_constant(window, index).value or 0) if index < len(window.arguments) else 0


def _float(window: Window, index: int) -> float:
    return float(_constant(window, index).value or 0)


def _column(window: Window, index: int) -> str:
    argument = window.arguments[index]
    assert not isinstance(argument, Constant), "the planner accepts no constant here"
    return argument.name


def time_columns(window: Window) -> tuple[str, ...]:
    """The attributes that give the window its time: an event where one is null fails."""
    match window.name:
        case "externalTime":
            return (_column(window, 0),)
        case "unique:externalTimeBatch":
            return (_column(window, 1),)
        case "externalTimeBatch":
            return tuple(one.name for one in window.arguments if not isinstance(one, Constant))
        case _:
            return ()


# Windows with a native loop


def _native(make_spec: Callable[[Window], WindowSpec]) -> Maker:
    def make(window: Window, context: WindowContext) -> WindowOperator:
        operator = RowRefWindow if context.late else NativeWindow
        return operator(make_spec(window), context)

    return make


def _length(window: Window) -> WindowSpec:
    return WindowSpec(
        sliding.length_loop, (_integer(window, 0),), queue=row_ref_window.length_queue, lines=3
    )


def _time(window: Window) -> WindowSpec:
    return WindowSpec(
        sliding.time_loop,
        (_integer(window, 0),),
        sliding.LATEST + 1,
        sliding.LATEST_START,
        queue=row_ref_window.time_queue,
        latest=sliding.LATEST,
    )


def _delay(window: Window) -> WindowSpec:
    arguments = (_integer(window, 0),)
    return WindowSpec(sliding.delay_loop, arguments, sliding.LATEST + 1, sliding.LATEST_START)


def _external_time(window: Window) -> WindowSpec:
    return WindowSpec(
        sliding.external_time_loop,
        (_integer(window, 1),),
        columns=(_column(window, 0),),
        queue=row_ref_window.external_time_queue,
    )


def _time_length(window: Window) -> WindowSpec:
    arguments = (_integer(window, 0), _integer(window, 1))
    return WindowSpec(sliding.time_length_loop, arguments, listed=(m.B_HEAD,))


def _length_batch(window: Window) -> WindowSpec:
    size, streams = _integer(window, 0), _integer(window, 1)
    return WindowSpec(
        tumbling.length_batch_loop,
        (size, streams),
        m.COMMON + 2,
        finds=m.B_HEAD,
        batch_rows=0 if streams else size,
    )


def _time_batch(window: Window) -> WindowSpec:
    span, start, streams = _integer(window, 0), None, False
    for index in range(1, len(window.arguments)):
        value = _constant(window, index).value
        if isinstance(value, bool):
            streams = value
        else:
            start = _integer(window, index)
    arguments = (span, start is not None, start or 0, streams)
    return WindowSpec(tumbling.time_batch_loop, arguments, m.COMMON + 2, finds=m.B_HEAD)


def _batch(window: Window) -> WindowSpec:
    return WindowSpec(tumbling.batch_loop, (_integer(window, 0),), m.COMMON + 2, finds=m.B_HEAD)


def _external_time_batch(window: Window) -> WindowSpec:
    start = window.arguments[2] if len(window.arguments) > 2 else None
    kind = 0 if start is None else 1 if isinstance(start, Constant) else 2
    start_ms = _integer(window, 2) if kind == 1 else 0
    replaces = _integer(window, 4)
    return WindowSpec(
        external_batch.external_time_batch_loop,
        (_integer(window, 1), kind, start_ms, _integer(window, 3), replaces),
        external_batch.REGISTERS,
        external_batch.BEGIN,
        finds=m.B_HEAD,
        columns=(_column(window, 0), *((_column(window, 2),) if kind == 2 else ())),
        replaces=replaces != 0,
    )


# Windows in Python


def _sort(window: Window, context: WindowContext) -> WindowOperator:
    size = _integer(window, 0)
    by: list[tuple[str, bool]] = []
    for argument in window.arguments[1:]:
        if isinstance(argument, Constant):
            by[-1] = (by[-1][0], str(argument.value).lower() == "desc")
        else:
            by.append((argument.name, False))
    return PythonWindow(lambda: SortWindow(size), sort_keys(by), context)


def _frequent(window: Window, context: WindowContext) -> WindowOperator:
    size, keys = _integer(window, 0), _keys(window, 1, context)
    return PythonWindow(lambda: Frequent(size), keys, context)


def _lossy_frequent(window: Window, context: WindowContext) -> WindowOperator:
    support, error = _float(window, 0), _float(window, 1)
    keys = _keys(window, 2, context)
    return PythonWindow(lambda: LossyFrequent(support, error), keys, context)


def _keys(
    window: Window, first: int, context: WindowContext
) -> Callable[[pa.RecordBatch], Sequence[list[str]]]:
    """The key of each event: the attributes from argument ``first`` on, or all that are used."""
    named = [_column(window, index) for index in range(first, len(window.arguments))]
    return keys_of(named or context.used)


def _session(window: Window, context: WindowContext) -> WindowOperator:
    gap, latency = _integer(window, 0), _integer(window, 2)
    keys = session_keys(_column(window, 1) if len(window.arguments) > 1 else None)
    return PythonWindow(lambda: Sessions(gap, latency), keys, context)


def _cron(window: Window, context: WindowContext) -> WindowOperator:
    schedule = Cron(str(_constant(window, 0).value))
    return PythonWindow(lambda: CronBatch(schedule), lambda rows: [], context)


def _hopping(window: Window, context: WindowContext) -> WindowOperator:
    span_ms, hop_ms = _integer(window, 0), _integer(window, 1)
    return PythonWindow(lambda: Hopping(span_ms, hop_ms), lambda rows: [], context)


def _unique(make: Callable[[Window], Callable[[], WindowContents]], keys: slice) -> Maker:
    """A window by the keys among its arguments; ``make`` returns what makes its contents."""

    def maker(window: Window, context: WindowContext) -> WindowOperator:
        names = [_column(window, index) for index in range(len(window.arguments))[keys]]
        return PythonWindow(make(window), _unique_keys(names, window.name in _BY_VALUE), context)

    return maker


def _unique_keys(
    names: list[str], is_by_value: bool
) -> Callable[[pa.RecordBatch], Sequence[Sequence[object]]]:
    """Each event's key as text, and the code that decides its order in the original's map."""
    texts = keys_of(names)

    def keys(rows: pa.RecordBatch) -> Sequence[Sequence[object]]:
        (key_texts,) = texts(rows)
        codes = places(rows.column(names[0])) if is_by_value else map(spread, key_texts)
        return [key_texts, list(codes)]

    return keys


def _unique_length_batch(*, keeps_first: bool) -> Callable[[Window], Callable[[], WindowContents]]:
    def make(window: Window) -> Callable[[], WindowContents]:
        size = _integer(window, 1)
        return lambda: UniqueLengthBatch(size, keeps_first=keeps_first)

    return make


def _unique_time_batch(*, keeps_first: bool) -> Callable[[Window], Callable[[], WindowContents]]:
    def make(window: Window) -> Callable[[], WindowContents]:
        span_ms = _integer(window, 1)
        start_ms = _integer(window, 2) if len(window.arguments) > 2 else None
        return lambda: UniqueTimeBatch(span_ms, start_ms, keeps_first=keeps_first)

    return make


def _unique_length(window: Window) -> Callable[[], WindowContents]:
    size = _integer(window, 1)
    return lambda: UniqueLength(size)


def _unique_time(window: Window) -> Callable[[], WindowContents]:
    span_ms = _integer(window, 1)
    return lambda: UniqueTime(span_ms)


def _unique_time_length_batch(window: Window) -> Callable[[], WindowContents]:
    span_ms, size = _integer(window, 1), _integer(window, len(window.arguments) - 1)
    start_ms = _integer(window, 2) if len(window.arguments) > 3 else None
    return lambda: UniqueTimeLengthBatch(span_ms, start_ms, size)


def _unique_external_time_batch(window: Window, context: WindowContext) -> WindowOperator:
    span_ms = _integer(window, 2)
    start_ms, timeout_ms = (
        _integer(window, place) if len(window.arguments) > place else None for place in (3, 4)
    )
    keys, time = _unique_keys([_column(window, 0)], is_by_value=True), _column(window, 1)

    def columns(rows: pa.RecordBatch) -> Sequence[Sequence[object]]:
        return [*keys(rows), rows.column(time).to_pylist()]

    return PythonWindow(
        lambda: UniqueExternalTimeBatch(span_ms, start_ms, timeout_ms), columns, context
    )


def _extreme(make: Callable[[Window], Callable[[], WindowContents]]) -> Maker:
    """A window of the extreme event by its first argument; ``make`` as for ``_unique``."""

    def maker(window: Window, context: WindowContext) -> WindowOperator:
        largest = window.name.startswith("extrema:max")
        return PythonWindow(
            make(window), extreme_keys(_column(window, 0), largest=largest), context
        )

    return maker


def _extreme_by_length(window: Window) -> Callable[[], WindowContents]:
    size = _integer(window, 1)
    return lambda: ExtremeByLength(size)


def _extreme_by_time(window: Window) -> Callable[[], WindowContents]:
    span_ms = _integer(window, 1)
    return lambda: ExtremeByTime(span_ms)


def _extreme_by_length_batch(window: Window) -> Callable[[], WindowContents]:
    size = _integer(window, 1)
    return lambda: ExtremeByLengthBatch(size)


def _extreme_by_time_batch(window: Window) -> Callable[[], WindowContents]:
    span_ms = _integer(window, 1)
    start_ms = _integer(window, 2) if len(window.arguments) > 2 else None
    return lambda: ExtremeByTimeBatch(span_ms, start_ms)


#: Windows whose map has the values of keys; the others have texts.
_BY_VALUE: Final = ("unique:lengthBatch", "unique:timeBatch", "unique:timeLengthBatch")
_ALL, _FIRST = slice(None), slice(1)


# Late selection


def _always(window: Window) -> bool:
    return True


def _has_length(window: Window) -> bool:
    """A window of length 0 keeps no rows: it resets at each of them."""
    size = window.arguments[-1]
    return isinstance(size, Constant) and bool(size.value)


def _keeps_times(window: Window) -> bool:
    """With a fifth argument the window replaces its rows' timestamps."""
    return len(window.arguments) < 5


def _registered(*kinds: WindowKind) -> dict[str, WindowKind]:
    return {kind.name: kind for kind in kinds}


_SIGNATURES: Final = {**catalogue.WINDOWS, **catalogue.DOCUMENTED_WINDOWS}
#: Windows that run, by name.
WINDOWS: Final = _registered(
    WindowKind(
        _SIGNATURES["batch"],
        _native(_batch),
        is_batch=True,
        holds_what_it_emits=True,
        keeps_arrival_time=True,
        resets_at_batch_time=True,
        holds_only_for_expired=True,
        can_select_late=_always,
    ),
    WindowKind(_SIGNATURES["cron"], _cron, has_timers=True),
    WindowKind(_SIGNATURES["delay"], _native(_delay), has_timers=True),
    WindowKind(
        _SIGNATURES["externalTime"],
        _native(_external_time),
        emits_on_arrival=True,
        holds_what_it_emits=True,
        can_select_late=_always,
    ),
    WindowKind(
        _SIGNATURES["externalTimeBatch"],
        _native(_external_time_batch),
        is_batch=True,
        has_timers=True,
        holds_what_it_emits=True,
        can_select_late=_keeps_times,
    ),
    WindowKind(_SIGNATURES["frequent"], _frequent),
    WindowKind(_SIGNATURES["hopping"], _hopping, is_batch=True, has_timers=True),
    WindowKind(
        _SIGNATURES["length"],
        _native(_length),
        emits_on_arrival=True,
        holds_what_it_emits=True,
        can_select_late=_has_length,
    ),
    WindowKind(
        _SIGNATURES["lengthBatch"],
        _native(_length_batch),
        is_batch=True,
        holds_what_it_emits=True,
        keeps_arrival_time=True,
        can_select_late=_always,
    ),
    WindowKind(_SIGNATURES["lossyFrequent"], _lossy_frequent),
    WindowKind(
        _SIGNATURES["session"],
        _session,
        has_timers=True,
        expires_untracked=True,
        tick_order=TickOrder(may_leave_early=True, with_snapshots=True, latency_argument=2),
    ),
    WindowKind(_SIGNATURES["sort"], _sort, emits_on_arrival=True),
    WindowKind(
        _SIGNATURES["time"],
        _native(_time),
        has_timers=True,
        emits_on_arrival=True,
        holds_what_it_emits=True,
        can_select_late=_always,
        tick_order=TickOrder(),
    ),
    WindowKind(
        _SIGNATURES["timeBatch"],
        _native(_time_batch),
        is_batch=True,
        has_timers=True,
        is_periodic=True,
        holds_what_it_emits=True,
        keeps_arrival_time=True,
        resets_at_batch_time=True,
        can_select_late=_always,
        tick_order=TickOrder(with_snapshots=True),
    ),
    WindowKind(
        _SIGNATURES["timeLength"],
        _native(_time_length),
        has_timers=True,
        emits_on_arrival=True,
        holds_what_it_emits=True,
        can_select_late=_has_length,
        tick_order=TickOrder(may_leave_early=True),
    ),
    WindowKind(
        _SIGNATURES["unique:ever"], _unique(lambda _: UniqueEver, _ALL), emits_on_arrival=True
    ),
    WindowKind(
        _SIGNATURES["unique:externalTimeBatch"],
        _unique_external_time_batch,
        is_batch=True,
        has_timers=True,
    ),
    WindowKind(_SIGNATURES["unique:first"], _unique(lambda _: UniqueFirst, _ALL)),
    WindowKind(
        _SIGNATURES["unique:firstLengthBatch"],
        _unique(_unique_length_batch(keeps_first=True), _FIRST),
        is_batch=True,
    ),
    WindowKind(
        _SIGNATURES["unique:firstTimeBatch"],
        _unique(_unique_time_batch(keeps_first=True), _FIRST),
        is_batch=True,
        has_timers=True,
    ),
    WindowKind(
        _SIGNATURES["unique:length"], _unique(_unique_length, _FIRST), emits_on_arrival=True
    ),
    WindowKind(
        _SIGNATURES["unique:lengthBatch"],
        _unique(_unique_length_batch(keeps_first=False), _FIRST),
        is_batch=True,
    ),
    WindowKind(
        _SIGNATURES["unique:time"],
        _unique(_unique_time, _FIRST),
        has_timers=True,
        emits_on_arrival=True,
    ),
    WindowKind(
        _SIGNATURES["unique:timeBatch"],
        _unique(_unique_time_batch(keeps_first=False), _FIRST),
        is_batch=True,
        has_timers=True,
    ),
    WindowKind(
        _SIGNATURES["unique:timeLengthBatch"],
        _unique(_unique_time_length_batch, _FIRST),
        is_batch=True,
        has_timers=True,
    ),
    *(
        kind
        for name in ("extrema:max", "extrema:min")
        for kind in (
            WindowKind(_SIGNATURES[f"{name}ByLength"], _extreme(_extreme_by_length)),
            WindowKind(_SIGNATURES[f"{name}ByTime"], _extreme(_extreme_by_time), has_timers=True),
            WindowKind(
                _SIGNATURES[f"{name}ByLengthBatch"],
                _extreme(_extreme_by_length_batch),
                is_batch=True,
            ),
            WindowKind(
                _SIGNATURES[f"{name}ByTimeBatch"],
                _extreme(_extreme_by_time_batch),
                is_batch=True,
                has_timers=True,
            ),
        )
    ),
)


def kind_of(window: Window) -> WindowKind:
    """The kind of ``window``.

    Raises:
        MeshError: MESH-O102, it has no operator.
    """
    kind = WINDOWS.get(window.name)
    if kind is None:
        raise MeshError(
            "MESH-O102",
            f'window "{window.name}" has no operator',
            detail="The planner accepted it, but this version can't run it.",
            hint="Do manager and worker have the same version?",
        )
    return kind


def make_window(
    window: Window,
    schema: pa.Schema,
    timer_path: int,
    *,
    expired: bool = True,
    used: Sequence[str | None] | None = None,
    late: bool = False,
) -> WindowOperator:
    """Make the operator of ``window``, empty.

    Args:
        window: the window as written, with its arguments bound.
        schema: the attributes that it keeps for its readers.
        timer_path: the place of its timers among those of other queries at one instant.
        expired: whether anything downstream reads expired events.  Without a reader a batch window
            keeps less.
        used: for each output of the query the attribute that it copies, None where it is computed.
            Windows that compare events, and name no attributes, compare them by these, as the
            reference engine does.  None: the attributes of ``schema``.
        late: make a ``RowRefWindow``, for a window that ``can_select_late``.

    Raises:
        MeshError: MESH-O102, it has no operator.
    """
    kind = kind_of(window)
    used = schema.names if used is None else used
    context = WindowContext(schema, timer_path, expired, used, late, kind.is_batch)
    return kind.make(window, context)
