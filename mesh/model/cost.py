"""Measured costs of groups: the order to the process that calibrates an app, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.model.app import AppSpec


@dataclass(frozen=True, slots=True)
class CalibrationTask:
    """The order to run an app's groups on random events."""

    spec: AppSpec
    #: Events of all streams that come from outside, divided by their rates.
    events: int
    #: Different values of each key.
    keys: int
    #: Events a second of each such stream.
    rates: Mapping[str, float]
    #: By stream: events as JSON objects from which rows are drawn; random values otherwise.
    samples: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class StateCost:
    """State of a group, measured with few keys."""

    #: Stored bytes for each key.
    key_bytes: float = 0.0
    #: Stored bytes without any key.
    base_bytes: float = 0.0
    #: Bytes that each further event adds when the measurement ends; 0 for a state that is steady.
    event_bytes: float = 0.0
    #: The longest time that the group's text names, seconds; 0 without one.
    longest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupCost:
    """Cost of one group's messages."""

    group: str
    #: Origin of the figures: ``calibrated``, or ``running`` for those of the app as it runs.
    source: str
    #: Messages that one busy instance reads in a second.
    rate: float
    #: Processor seconds of the worker, and of NATS, for each message.
    worker_s: float
    nats_s: float
    #: By stream: events that the group emits for each event that it reads.
    rows: Mapping[str, float] = field(default_factory=dict, hash=False)
    #: Messages, and events in them, that it reads for each event of the app's input.
    messages: float = 1.0
    events: float = 1.0
    #: None for a group without state.
    state: StateCost | None = None
