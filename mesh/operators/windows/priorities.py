"""``#priority:time(key, priority, t)``: events of a key until its priority has sunk to 0.

An event is emitted with the priority of its key: that before, and its own. After each time t
without an event of the key the priority sinks by 1, and the latest event of the key is emitted once
more, until it is 0. An event with a null key or priority is dropped.

Source: API documentation of siddhi-execution-priority 5.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mesh.functions.objects import identity
from mesh.operators.base import CURRENT
from mesh.operators.windows.contents import BoundedContents
from mesh.operators.windows.ranked import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter


@dataclass(slots=True)
class _Held:
    """The latest event of a key, and the time from which the next step counts."""

    key: Any
    row: int
    since_ms: int
    priority: int


class Priorities(BoundedContents):
    """The keys of one instance with a priority above 0, in the order of their next steps."""

    def __init__(self, span_ms: int) -> None:
        self._span_ms = span_ms
        self._held: dict[object, _Held] = {}
        #: The timer that is set, not after the next step.
        self._due_ms: int | None = None

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Emit one event with the priority of its key."""
        key, priority = plain(values[0]), plain(values[1])
        if key is None or priority is None:
            return
        held = self._held.get(identity(key))
        if held is None:
            held = _Held(key, row, time_ms, priority)
        else:
            held.row, held.since_ms = row, time_ms
            held.priority += priority
        if held.priority > 0:
            self._held[identity(key)] = held
        else:
            self._held.pop(identity(key), None)
        to.emit(row, CURRENT, time_ms, (key, held.priority))
        self._set_timer(to)

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Lower the priorities whose time is over."""
        self._due_ms = None
        for name, held in list(self._held.items()):
            if held.since_ms + self._span_ms > now_ms:
                continue
            del self._held[name]
            held.priority -= 1
            held.since_ms = now_ms
            if held.priority > 0:
                self._held[name] = held
            to.emit(held.row, CURRENT, now_ms, (held.key, held.priority))
        self._set_timer(to)

    def _set_timer(self, to: Emitter) -> None:
        if self._held and self._due_ms is None:
            # Events of a key move its step to later, so the timer may come early, and is set again.
            self._due_ms = min(held.since_ms for held in self._held.values()) + self._span_ms
            to.alarms.append(self._due_ms)

    def rows(self) -> Iterable[int]:
        """The latest event of each key."""
        return [held.row for held in self._held.values()]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """No join reads it."""
        return ()

    def dump(self) -> object:
        """Its state as JSON."""
        held = [[one.key, one.row, one.since_ms, one.priority] for one in self._held.values()]
        return [self._due_ms, held]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._due_ms, held = state
        self._held = {identity(one[0]): _Held(*one) for one in held}
