"""``@dist``: the group of an element, its number of instances, and the labels of its workers.

    @dist(execGroup='sums', parallel='4', partitions='16', node='gpu=true', standby='1',
          mode='micro-batch', min='1', max='8')

``partitions`` is the number of virtual partitions of the keyed channels that the group reads; a
group that sets it can be scaled later, also from one instance.  ``node`` names labels that a worker
must have.  ``standby`` requests a second worker that keeps a copy of each instance's state.
``mode`` is how workers run it (``GroupMode``).  ``min`` and ``max`` are the numbers of instances
between which the leader chooses by load (``mesh.control.autoscale``).  Nested in ``@source(..)`` it
has ``parallel`` alone, that of the stream's receiver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.syntax import Annotation, find
from mesh.model.app import GroupMode, ScaleBounds
from mesh.plan.diagnostics import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.errors import Position

#: The group of queries without ``@dist``; saying it in ``@dist`` means the same group.
DEFAULT_GROUP: Final = "default"
#: Groups that the planner adds are called so, and no others.
PARTITIONER_PREFIX: Final = "partition-"
RECEIVER_PREFIX: Final = "receiver-"
TRIGGER_PREFIX: Final = "trigger-"
AGGREGATION_PREFIX: Final = "aggregation-"
SINK_PREFIX: Final = "sink-"
_RESERVED: Final = (
    PARTITIONER_PREFIX, RECEIVER_PREFIX, SINK_PREFIX, TRIGGER_PREFIX, AGGREGATION_PREFIX,
)  # fmt: skip
#: A group's name is part of the names of instances, keys and producers.
_GROUP_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}\Z")
_LABEL: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*=[A-Za-z0-9_.-]+\Z")
_ELEMENTS: Final = (
    "execGroup", "parallel", "partitions", "node", "standby", "mode", "min", "max",
)  # fmt: skip
PARALLEL_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Dist:
    """The ``@dist`` of one element's group, with its position."""

    group: str
    parallel: int
    position: Position
    #: None if not specified.
    partitions: int | None = None
    #: ``key=value`` of each label that a worker must have; None if not specified.
    node: tuple[str, ...] | None = None
    #: Standbys of each instance, 0 or 1; None if not specified.
    standby: int | None = None
    #: None if not specified.
    mode: GroupMode | None = None
    #: Bounds of the number of instances; None if the load does not decide it.
    bounds: ScaleBounds | None = None


def read_dist(
    annotations: Iterable[Annotation], position: Position, otherwise: str = DEFAULT_GROUP
) -> Dist:
    """Read the ``@dist`` of an element at ``position``; ``otherwise``: its group without one.

    Raises:
        MeshError: MESH-P203 to P205 and P224 to P228 for errors in it.
    """
    matches = [a for a in annotations if a.name.lower() == "dist"]
    if not matches:
        return Dist(otherwise, 1, position)
    if len(matches) > 1:
        raise MeshError("MESH-P203", "two @dist before one element", position=matches[1].position)
    dist = matches[0]
    _refuse_others(dist, _ELEMENTS, "Write @dist(execGroup='name', parallel='2').")
    bounds = _bounds(dist)
    return Dist(
        _group_name(dist, otherwise),
        _number(dist, "parallel", "parallelism") or (bounds.least if bounds is not None else 1),
        dist.position,
        _number(dist, "partitions", "number of partitions"),
        _labels(dist),
        _standby(dist),
        _mode(dist),
        bounds,
    )


def receiver_parallel(sources: Sequence[Annotation]) -> int:
    """Number of instances of the receiver of a stream with these ``@source``.

    The lowest ``@dist(parallel='n')`` in them; 1 if there is none.
    """
    said = []
    for source in sources:
        dist = find(source.annotations, "dist")
        if dist is not None:
            _refuse_others(dist, ("parallel",), "Write @source(.., @dist(parallel='2')).")
            said.append(_number(dist, "parallel", "parallelism") or 1)
    return min(said, default=1)


def _refuse_others(dist: Annotation, allowed: Sequence[str], hint: str) -> None:
    for key, _ in dist.elements:
        if key is None or key.lower() not in [k.lower() for k in allowed]:
            raise MeshError(
                "MESH-P203",
                f'@dist has no element "{key}"' if key else "@dist has a text without a key",
                hint=(nearest(key, allowed) if key else None) or hint,
                position=dist.position,
            )


def _group_name(dist: Annotation, otherwise: str) -> str:
    name = dist.get("execGroup")
    if name is None:
        return otherwise
    if not _GROUP_NAME.match(name) or name.startswith(_RESERVED):
        raise MeshError(
            "MESH-P204",
            f'group name "{name}" can\'t be used',
            detail="It is part of instance names and keys.",
            hint=f"Use letters, digits, '_' and '-'; not '{PARTITIONER_PREFIX}..', "
            f"'{RECEIVER_PREFIX}..', '{SINK_PREFIX}..', '{TRIGGER_PREFIX}..' or "
            f"'{AGGREGATION_PREFIX}..', which are ours.",
            position=dist.position,
        )
    return name


def _number(dist: Annotation, key: str, what: str) -> int | None:
    text = dist.get(key)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,6}", text.strip()) or not 1 <= int(text) <= PARALLEL_MAX:
        raise MeshError(
            "MESH-P205",
            f'{what} "{text}" is not a whole number from 1 to {PARALLEL_MAX}',
            position=dist.position,
        )
    return int(text)


def _bounds(dist: Annotation) -> ScaleBounds | None:
    least, most = _number(dist, "min", "least number"), _number(dist, "max", "greatest number")
    if least is None and most is None:
        return None
    said = _number(dist, "parallel", "parallelism") or least or 1
    if most is None or not (least or 1) <= said <= most:
        raise MeshError(
            "MESH-P228",
            "'min', 'parallel' and 'max' of @dist are no ascending numbers"
            if most is not None
            else "@dist has 'min' and no 'max'",
            hint="Write @dist(execGroup='name', min='1', max='8'); 'parallel' is the number at "
            "the start, 'min' without it.",
            position=dist.position,
        )
    return ScaleBounds(least or 1, most)


def _labels(dist: Annotation) -> tuple[str, ...] | None:
    text = dist.get("node")
    if text is None:
        return None
    labels = tuple("=".join(p.strip() for p in one.split("=")) for one in text.split(","))
    for label in labels:
        if not _LABEL.match(label):
            raise MeshError(
                "MESH-P224",
                f'label "{label}" of @dist(node=..) is no key=value',
                hint="Write node='gpu=true', or several: node='gpu=true, zone=a'.",
                position=dist.position,
            )
    return tuple(dict.fromkeys(labels))


def _standby(dist: Annotation) -> int | None:
    text = dist.get("standby")
    if text is None:
        return None
    if text.strip() not in ("0", "1"):
        raise MeshError(
            "MESH-P226",
            f'number of standbys "{text}" is neither 0 nor 1',
            detail="An instance has one standby; more would mirror the same state again.",
            position=dist.position,
        )
    return int(text)


def _mode(dist: Annotation) -> GroupMode | None:
    text = dist.get("mode")
    if text is None:
        return None
    try:
        return GroupMode(text.strip().lower())
    except ValueError:
        raise MeshError(
            "MESH-P227",
            f'mode "{text}" is none of {", ".join(GroupMode)}',
            hint=nearest(text, list(GroupMode)) or "Without a mode a group runs in real time.",
            position=dist.position,
        ) from None
