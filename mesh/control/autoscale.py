"""Choice of the number of a group's instances by its load.

Samples of groups go in, at most one change comes out.  Of a group with the bounds
``@dist(min='1', max='8')`` the scaler knows

- the arrivals ``a``, messages a second: what was read, plus the growth of the backlog ``b``;
- the rate ``r`` of one busy instance: what it read while messages always waited.

It needs ``(a + b / T) / (r u)`` instances to drain the backlog within ``T`` seconds at the
utilisation ``u`` (the rule of Numaflow and of Flink's autoscaler).  It goes up when messages have
waited for half a minute, and down when the group was below ``u_down`` for five minutes.  A group
that goes up soon after it went down waits twice as long the next time, so a load that rises and
falls cannot make it change without end.

While anything rescales, restores or fails, nothing changes; a group whose reader has a growing
backlog does not go up, since that would only move the backlog.  Several groups never change at
once, because the effect of one on another is known only afterwards.

The state is that of one manager while it leads; the next leader observes half a minute first.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Interval of samples, seconds.
SAMPLE_S: Final = 5.0
#: Time over which arrivals are averaged, and during which messages must wait, seconds.
WINDOW_S: Final = 30.0
#: ``T`` and ``u``: time in which a backlog is to be drained, seconds, and utilisation then.
DRAIN_S: Final = 20.0
UTILISATION: Final = 0.8
#: Utilisation below which fewer instances are enough.
LOW: Final = 0.7
#: Time below it before a group goes down, and the longest such time after changes to and fro.
DOWN_S: Final = 300.0
DOWN_MAX_S: Final = 3600.0
#: Time between two changes of one group, seconds.
COOL_DOWN_S: Final = 90.0
#: An instance is busy while at least so many messages wait, and those of half a second.
WAITING_MIN: Final = 100
WAITING_S: Final = 0.5
#: More instances have helped if they read so many times as much as before.
GAIN_MIN: Final = 1.1
#: Time for which a group that gained nothing does not go further up, seconds.
CEILING_S: Final = 1800.0

GroupKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """One sample of a group."""

    app: str
    group: str
    #: Its instances now.
    parallel: int
    #: Numbers of instances that it may have, ascending; empty for one that is not scaled by load.
    sizes: tuple[int, ...]
    #: Messages read a second, by all instances.
    rate: float
    #: Messages that wait.
    backlog: int
    #: Whether all its instances run and have reported.
    is_settled: bool = True
    #: The groups that read what it writes.
    readers: tuple[GroupKey, ...] = ()

    @property
    def key(self) -> GroupKey:
        """App and group."""
        return self.app, self.group


@dataclass(frozen=True, slots=True)
class ScaleChange:
    """Another number of instances for a group, with the reason."""

    app: str
    group: str
    parallel: int
    target: int
    reason: str


@dataclass(slots=True)
class _Group:
    """Memory of one group's samples."""

    #: Rate and backlog of each sample in the window.
    samples: deque[tuple[float, int]] = field(default_factory=deque)
    #: ``r``; None until an instance was busy.
    busy_rate: float | None = None
    #: Since when fewer instances would have been enough, and the greatest arrivals since.
    low_since_s: float | None = None
    low_peak: float = 0.0
    #: Instances for the load of the last whole window.
    needed: int | None = None
    changed_s: float = -math.inf
    #: The last change downwards, and the time below ``LOW`` that the next one takes.
    down_at_s: float = -math.inf
    down_after_s: float = DOWN_S
    #: Rate of all instances before the last change upwards, until its gain is known.
    rate_before: float | None = None
    #: Until when more instances are known not to help.
    ceiling_until_s: float = -math.inf


@dataclass(frozen=True, slots=True)
class _Window:
    """Means over the last half minute."""

    rate: float
    arrivals: float
    backlog: int
    #: Messages waited all the time.
    is_busy: bool
    is_growing: bool


class Autoscaler:
    """Memory of all groups; for one task at a time."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, _Group] = {}

    def step(self, now_s: float, loads: Sequence[GroupLoad]) -> ScaleChange | None:
        """Take a sample of all groups; at most one change.

        Args:
            now_s: monotonic, seconds; ``SAMPLE_S`` after the last sample.
            loads: every group of the mesh, also those without bounds.
        """
        self._groups = {one.key: self._groups.get(one.key) or _Group() for one in loads}
        windows = {one.key: _observed(self._groups[one.key], one) for one in loads}
        ups: list[tuple[float, ScaleChange]] = []
        downs: list[ScaleChange] = []
        for one in loads:
            window = windows[one.key]
            if not one.sizes or window is None:
                continue
            group = self._groups[one.key]
            _learn(group, one, window, now_s)
            group.needed = _needed(group, one, window)
            change = _outside(one) or _up(group, one, window, windows, now_s)
            if change is not None:
                ups.append((window.backlog / max(window.rate, 1.0), change))
            elif (change := _down(group, one, window, now_s)) is not None:
                downs.append(change)
        if not all(one.is_settled for one in loads):
            return None
        chosen = max(ups, key=lambda up: up[0])[1] if ups else next(iter(downs), None)
        if chosen is not None:
            self._note(chosen, windows, now_s)
        return chosen

    def target(self, load: GroupLoad) -> int:
        """Instances that a group needs for its load as last known; its own number before that."""
        group = self._groups.get(load.key)
        return load.parallel if group is None or group.needed is None else group.needed

    def _note(
        self, change: ScaleChange, windows: Mapping[GroupKey, _Window | None], now_s: float
    ) -> None:
        group, window = self._groups[change.app, change.group], windows[change.app, change.group]
        assert window is not None, "a change comes from a window"
        group.samples.clear()
        group.low_since_s = None
        group.changed_s = now_s
        if change.target < change.parallel:
            group.down_at_s = now_s
            return
        is_relapse = now_s - group.down_at_s < 2 * group.down_after_s
        factor = 2.0 if is_relapse else 0.5
        group.down_after_s = min(DOWN_MAX_S, max(DOWN_S, group.down_after_s * factor))
        group.rate_before = window.rate


_SAMPLES: Final = round(WINDOW_S / SAMPLE_S) + 1


def _observed(group: _Group, load: GroupLoad) -> _Window | None:
    """The window that ends with this sample; None while it is not whole."""
    if not load.is_settled:
        group.samples.clear()
        group.low_since_s = None
        return None
    group.samples.append((load.rate, load.backlog))
    if len(group.samples) > _SAMPLES:
        group.samples.popleft()
    return _window(group.samples) if len(group.samples) == _SAMPLES else None


def _window(samples: Sequence[tuple[float, int]]) -> _Window:
    # The first rate is of the time before the window.
    rate = sum(rate for rate, _ in list(samples)[1:]) / (len(samples) - 1)
    first, last = samples[0][1], samples[-1][1]
    growth = (last - first) / ((len(samples) - 1) * SAMPLE_S)
    waiting = min(backlog for _, backlog in samples)
    return _Window(
        rate,
        max(0.0, rate + growth),
        last,
        is_busy=waiting >= max(WAITING_MIN, WAITING_S * rate),
        is_growing=growth > 0.01 * rate,
    )


def _learn(group: _Group, load: GroupLoad, window: _Window, now_s: float) -> None:
    """Update the rate of a busy instance, and what the last change has gained."""
    if not window.is_busy:
        group.rate_before = None
        if window.rate > (group.busy_rate or math.inf) * load.parallel:
            # It kept up with more than it was seen to do while busy.
            group.busy_rate = window.rate / load.parallel
        return
    group.busy_rate = window.rate / load.parallel
    if group.rate_before is not None:
        if window.rate < GAIN_MIN * group.rate_before:
            group.ceiling_until_s = now_s + CEILING_S
        group.rate_before = None


def _outside(load: GroupLoad) -> ScaleChange | None:
    """The change of a group whose number is outside of its bounds."""
    if load.sizes[0] <= load.parallel <= load.sizes[-1]:
        return None
    target = load.sizes[0] if load.parallel < load.sizes[0] else load.sizes[-1]
    bounds = f"@dist(min='{load.sizes[0]}', max='{load.sizes[-1]}')"
    return ScaleChange(load.app, load.group, load.parallel, target, f"it is outside of {bounds}")


def _needed(group: _Group, load: GroupLoad, window: _Window) -> int:
    if group.busy_rate is None:
        return load.parallel
    demand = (window.arrivals + window.backlog / DRAIN_S) / (group.busy_rate * UTILISATION)
    return next((size for size in load.sizes if size >= demand), load.sizes[-1])


def _up(
    group: _Group,
    load: GroupLoad,
    window: _Window,
    windows: Mapping[GroupKey, _Window | None],
    now_s: float,
) -> ScaleChange | None:
    if not window.is_busy or now_s - group.changed_s < COOL_DOWN_S:
        return None
    if now_s < group.ceiling_until_s or any(
        (reader := windows.get(key)) is not None and reader.is_busy and reader.is_growing
        for key in load.readers
    ):
        return None
    most = max(2 * load.parallel, load.parallel + 2)
    needed = _needed(group, load, window)
    # At least the next size, at most twice as many.
    larger = [s for s in load.sizes if load.parallel < s <= needed]
    if not larger:
        return None
    target = max([s for s in larger if s <= most], default=larger[0])
    reason = (
        f"{window.backlog:,} messages wait, {window.arrivals:,.0f} arrive a second, and an "
        f"instance reads {group.busy_rate or 0.0:,.0f}"
    )
    return ScaleChange(load.app, load.group, load.parallel, target, reason)


def _down(group: _Group, load: GroupLoad, window: _Window, now_s: float) -> ScaleChange | None:
    smaller = [size for size in load.sizes if size < load.parallel]
    if not smaller or window.is_busy or not _is_enough(group, smaller[-1], window.arrivals):
        group.low_since_s = None
        return None
    if group.low_since_s is None:
        group.low_since_s, group.low_peak = now_s, 0.0
    group.low_peak = max(group.low_peak, window.arrivals)
    waited_s = now_s - group.low_since_s
    if waited_s < group.down_after_s or now_s - group.changed_s < COOL_DOWN_S:
        return None
    # With an unknown rate it tries the next size; at most half of the instances go at once.
    least = smaller[-1] if group.busy_rate is None else math.ceil(load.parallel / 2)
    enough = (s for s in smaller if s >= least and _is_enough(group, s, group.low_peak))
    target = next(enough, smaller[-1])
    reason = (
        f"at most {group.low_peak:,.0f} messages arrived a second in {waited_s / 60:.0f} minutes"
    )
    return ScaleChange(load.app, load.group, load.parallel, target, reason)


def _is_enough(group: _Group, size: int, arrivals: float) -> bool:
    return group.busy_rate is None or arrivals <= LOW * group.busy_rate * size
