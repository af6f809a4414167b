"""Retention that follows readers: an app's messages stay until its groups have processed them.

    oldest message not processed, older than half of max_age ──▶ max_age = twice its age
    oldest message not processed, younger again              ──▶ max_age as it was

So an app that is paused, or fails for longer than ``channels.max_age_s``, continues without a gap.
``max_bytes`` of a stream bounds its size all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.control.verification import RETENTION_USED, app_streams

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mesh.control.verification import Evidence, StreamEvidence

#: A new retention, as a multiple of the age of the oldest message that is needed.
_TIMES: Final = 2.0


@dataclass(frozen=True, slots=True)
class Retention:
    """A change of a stream's retention."""

    js_stream: str
    max_age_s: float
    #: The group that has not processed the oldest message; empty for the end of an extension.
    group: str = ""


def retentions(evidence: Evidence, ages_s: Mapping[str, float]) -> list[Retention]:
    """The streams of an app whose retention is to change.

    Args:
        evidence: about the app.
        ages_s: by stream that was extended: the age of the first message that a group needs, 0 if
            none waits.
    """
    if not evidence.record.spec.creates_channels:
        return []
    return [retention for one in _read_streams(evidence) for retention in _change(*one, ages_s)]


def needed(evidence: Evidence) -> dict[str, int]:
    """By stream that was extended: the first sequence that a group needs."""
    return {
        stream.name: taken + 1
        for stream, _, taken in _read_streams(evidence)
        if stream.max_age_before_s
    }


def _read_streams(evidence: Evidence) -> Iterator[tuple[StreamEvidence, str, int]]:
    """Streams of the app with a reader: the group that is last, and the last it has processed."""
    taken: dict[str, tuple[int, str]] = {}
    for (group, name), sequence in (_by_markers(evidence) | dict(evidence.read)).items():
        taken[name] = min((sequence, group), taken.get(name, (sequence, group)))
    for name in app_streams(evidence.record.spec):
        stream = evidence.streams.get(name)
        if stream is not None and name in taken:
            sequence, group = taken[name]
            yield stream, group, sequence


def _by_markers(evidence: Evidence) -> dict[tuple[str, str], int]:
    """By group without state and input: the least position of its output.

    Reports of groups that run are better: a group may emit nothing for what it has processed.
    """
    positions: dict[tuple[str, str], int] = {}
    for marker in evidence.markers:
        producer = evidence.producers.get((marker.js_stream, marker.producer))
        if producer is None:
            continue
        for name in producer.inputs:
            place = producer.group, name
            positions[place] = min(marker.position, positions.get(place, marker.position))
    return positions


def _change(
    stream: StreamEvidence, group: str, taken: int, ages_s: Mapping[str, float]
) -> Iterator[Retention]:
    most_s, age_s = stream.max_age_s, stream.first_age_s
    is_needed = stream.messages > 0 and taken < stream.first
    if is_needed and most_s and age_s > RETENTION_USED * most_s:
        yield Retention(stream.name, round(_TIMES * age_s), group)
        return
    # A message that is still old needs the extension until it is processed.
    is_young = ages_s.get(stream.name, 0.0) < RETENTION_USED * stream.max_age_before_s
    if stream.max_age_before_s and is_young and not is_needed:
        yield Retention(stream.name, stream.max_age_before_s)
