"""Settings of an aggregation: ``@purge`` and ``@App:aggTimeZone``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.language.parser import parse_expression
from mesh.language.syntax import Literal, find
from mesh.operators.aggregations.rollup import PURGE_INTERVAL_MS, RETENTION_MS, Purging
from mesh.plan.aggregation_tables import duration_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.language.syntax import Annotation
    from mesh.plan.bound import BoundAggregation

_ALL = "all"


def purging_of(definition: BoundAggregation) -> Purging | None:
    """The purging of an aggregation's closed cells; None: they are kept."""
    annotation = find(definition.annotations, "purge")
    max_age_ms = {d: ms for d, ms in RETENTION_MS.items() if d in definition.durations}
    if annotation is None:
        return Purging(PURGE_INTERVAL_MS, max_age_ms)
    if (annotation.get("enable") or "true").lower() == "false":
        return None
    interval = annotation.get("interval")
    periods = find(annotation.annotations, "retentionPeriod")
    for key, text in periods.elements if periods is not None else ():
        duration = duration_of(key or "")
        assert duration is not None, "the binder checks it"
        if text.lower() == _ALL:
            max_age_ms.pop(duration, None)
        else:
            max_age_ms[duration] = milliseconds(text)
    return Purging(PURGE_INTERVAL_MS if interval is None else milliseconds(interval), max_age_ms)


def zone_of(annotations: Iterable[Annotation]) -> str | None:
    """The time zone of an app's aggregations; None for UTC."""
    annotation = find(tuple(annotations), "app:aggTimeZone")
    return None if annotation is None else annotation.get()


def milliseconds(text: str) -> int:
    """A time as annotations have it, such as ``10 sec``."""
    time = parse_expression(text)
    assert isinstance(time, Literal) and isinstance(time.value, int), "the binder checks it"  # noqa: PT018
    return time.value
