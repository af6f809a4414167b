"""Which streams cross the wire, in what form, and who reads them how.

A stream is internal when one group writes it and no other group reads it but that one; it never
touches the wire.  Every other stream that is read or written is a channel.  One that a group reads
by key has two: the plain one, where anybody may publish, and the keyed one, which a partitioner
group fills from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, not_supported
from mesh.model.app import Channel, Format, GroupInput, Strategy
from mesh.plan.groups import PARTITIONER_PREFIX
from mesh.plan.strategies import shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.plan.bound import BoundApp
    from mesh.plan.groups import Group
    from mesh.plan.strategies import Share

#: Virtual partitions of a keyed channel.
PARTITIONS: Final = 8


@dataclass(frozen=True, slots=True)
class Partitioner:
    """A group to be added: it copies ``source`` to ``target``, each event to its partition."""

    source: Channel
    target: Channel

    @property
    def name(self) -> str:
        """``partition-{stream}-{key}``."""
        return f"{PARTITIONER_PREFIX}{self.source.stream.name}-{self.target.key_name}"


@dataclass(frozen=True, slots=True)
class Wiring:
    """The channels of an app and who holds their ends."""

    channels: tuple[Channel, ...]
    partitioners: tuple[Partitioner, ...]
    #: By the names of groups, partitioners among them.
    inputs: dict[str, tuple[GroupInput, ...]]
    outputs: dict[str, tuple[Channel, ...]]


def wire(bound: BoundApp, groups: Sequence[Group], partitions: int = PARTITIONS) -> Wiring:
    """The channels between ``groups`` and to the world, in the order of the app's streams.

    Raises:
        MeshError: MESH-P900 where a group writes a stream and would have to read it off the wire;
            MESH-P213 where there are more instances than partitions; what ``shares`` refuses.
    """
    assert partitions >= 1
    shared = {group.name: shares(group) for group in groups}
    uses = {group.name: group.uses for group in groups}
    for group in groups:
        _refuse_idle_instances(group, shared[group.name], partitions)
    plain: dict[str, Channel] = {}
    keyed: dict[tuple[str, frozenset[str]], Channel] = {}
    for schema in bound.streams:
        writers = [g for g in groups if schema.name in uses[g.name].writes]
        readers = [g for g in groups if schema.name in uses[g.name].reads]
        if _is_internal(writers, readers) or not (writers or readers):
            continue
        _refuse_shared_writing(schema.name, writers, readers)
        outside = [
            share
            for g in readers
            if g not in writers
            for share in shared[g.name]
            if share.stream == schema.name
        ]
        has_edge = bool(writers) and bool(outside)
        form = Format.ARROW if has_edge else Format.JSON
        plain[schema.name] = Channel(bound.name, schema, format=form)
        for share in outside:
            if share.strategy is Strategy.BY_KEY:
                key = (schema.name, frozenset(share.key))
                channel = Channel(bound.name, schema, share.key, partitions, Format.ARROW)
                keyed.setdefault(key, channel)
    partitioners = tuple(
        Partitioner(plain[stream], channel) for (stream, _), channel in keyed.items()
    )
    reads: dict[str, list[tuple[Channel, Strategy]]] = {
        group.name: [
            (plain[share.stream], share.strategy)
            if share.strategy is not Strategy.BY_KEY
            else (keyed[share.stream, frozenset(share.key)], share.strategy)
            for share in shared[group.name]
            if share.stream in plain and share.stream not in uses[group.name].writes
        ]
        for group in groups
    }
    # One instance keeps the order of events with one key; it may be scaled where that is no matter.
    reads |= {p.name: [(p.source, Strategy.ALL)] for p in partitioners}
    outputs = {g.name: tuple(plain[s] for s in uses[g.name].writes if s in plain) for g in groups}
    outputs |= {p.name: (p.target,) for p in partitioners}
    parallel = {g.name: g.parallel for g in groups}
    return Wiring(
        channels=tuple(_in_order(plain.values(), keyed.values())),
        partitioners=partitioners,
        inputs=_with_recorders(reads, parallel),
        outputs=outputs,
    )


def _refuse_idle_instances(group: Group, shared: Iterable[Share], partitions: int) -> None:
    if group.parallel > partitions and any(s.strategy is Strategy.BY_KEY for s in shared):
        raise MeshError(
            "MESH-P213",
            f'group "{group.name}" has parallelism {group.parallel}, more than its partitions',
            detail=f"A keyed channel has {partitions} partitions, and each has one instance.",
            hint=f"Set parallel='{partitions}' or less.",
            position=group.elements[0].tree.position,
        )


def _is_internal(writers: Sequence[Group], readers: Sequence[Group]) -> bool:
    return len(writers) == 1 and list(readers) == list(writers)


def _refuse_shared_writing(stream: str, writers: Sequence[Group], readers: Sequence[Group]) -> None:
    """Refuse a stream that a group writes and reads while another group writes it too."""
    both = [group for group in readers if group in writers]
    if not both or len(writers) < 2:
        return
    group = both[0]
    other = next(g for g in writers if g is not group)
    tree = next(tree for tree, query in group.queries if stream in query.input_streams)
    raise not_supported(
        f'stream "{stream}" read in group "{group.name}" and written there and in "{other.name}"',
        tree.input.position,
        hint="Put the query that reads it into a group of its own.",
    )


def _in_order(plain: Iterable[Channel], keyed: Iterable[Channel]) -> list[Channel]:
    """Plain channels in the order of streams, each with its keyed ones behind it."""
    by_stream: dict[str, list[Channel]] = {c.stream.name: [c] for c in plain}
    for channel in keyed:
        by_stream[channel.stream.name].append(channel)
    return [channel for channels in by_stream.values() for channel in channels]


def _with_recorders(
    reads: dict[str, list[tuple[Channel, Strategy]]], parallel: dict[str, int]
) -> dict[str, tuple[GroupInput, ...]]:
    """Inputs of groups, one reader of each channel recording what can't be read.

    One that reads all with one instance, if there is such a one: its view has no gaps.  The others
    see each event once as well, so the first of them will do.
    """
    recorder: dict[str, str] = {}
    ranked = sorted(
        reads, key=lambda name: parallel.get(name, 1) > 1
    )  # A stable sort: groups keep their order within a rank.
    for name in ranked:
        for channel, _ in reads[name]:
            recorder.setdefault(channel.subject(), name)
    return {
        name: tuple(
            GroupInput(channel, strategy, recorder[channel.subject()] == name)
            for channel, strategy in inputs
        )
        for name, inputs in reads.items()
    }
