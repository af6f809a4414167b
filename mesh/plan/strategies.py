"""Strategies: the way in which the instances of a group share its input.

With one instance a group reads all events.  With several, plain queries read round robin.
Partitions read the streams that they divide by key, and every other stream as a whole.
Aggregations with ``group by`` and no window read by the group-by columns.  Other queries with state
would keep a part of it in each instance, and are refused.

Partitioning keys of streams: attributes, a computed value, or ranges.

A key has a name that occurs in subjects and in names of JetStream streams: the joined names of its
attributes, or for a computed key the words of its text with a digest.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, not_supported
from mesh.language.print_expressions import print_expression, print_string
from mesh.language.syntax import Partition, Query, RangePartition
from mesh.model.app import Strategy
from mesh.model.types import AttributeType
from mesh.plan.aggregation_tables import divided_by, is_divisible, joins_with
from mesh.plan.bound import (
    BoundAggregation,
    BoundJoin,
    BoundPartition,
    BoundPattern,
    BoundQuery,
    BoundStream,
    BoundStreamFunction,
    Column,
    has_aggregate,
)
from mesh.plan.dependencies import WITH_STATE
from mesh.plan.stores import is_in_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.errors import Position
    from mesh.language.syntax import PartitionKey
    from mesh.model.types import StreamSchema
    from mesh.plan.bound import BoundKey
    from mesh.plan.groups import Element, Group


@dataclass(frozen=True, slots=True)
class InputPartitioning:
    """A group's strategy for one stream; ``key`` only by key."""

    stream: str
    strategy: Strategy
    key: Key | None = None


@dataclass(frozen=True, slots=True)
class _ReadRequirement:
    """An element's requirement for a stream; without a key round robin, or all of it."""

    stream: str
    key: Key | None
    wants_all: bool
    position: Position
    #: Any of the key's attributes will do, as with ``group by``: rows that are alike in all are
    #: alike in some.
    takes_part: bool = False
    #: For readers that accept events in any division: a key that distributes them as well.
    spread: Key | None = None


def input_partitioning(group: Group) -> tuple[InputPartitioning, ...]:
    """Strategy of ``group`` for each of its streams, internal ones too, in order of first mention.

    Raises:
        MeshError: MESH-P206 to P212, P218 and P219 if several instances can't share the events,
            MESH-P223 if partitions are requested and nothing is read by key, MESH-P900 for inputs
            that can't be divided yet.
    """
    if not group.is_shared:
        return tuple(InputPartitioning(stream, Strategy.ALL) for stream in group.reads)
    wishes = [wish for element in group.elements for wish in _wishes(group, element)]
    keys: dict[str, Key] = {}
    for wish in sorted(wishes, key=lambda wish: wish.takes_part):
        if wish.key is None:
            continue
        first = keys.get(wish.stream)
        both = wish.key if first is None else _both(first, wish, wishes)
        if both is None:
            raise MeshError(
                "MESH-P209",
                f'group "{group.name}" reads stream "{wish.stream}" by two keys',
                detail=f"They are {first} and {wish.key}.",
                hint="Put one of the queries into another group.",
                position=wish.position,
            )
        keys[wish.stream] = both
    whole = {wish.stream for wish in wishes if wish.wants_all}
    if keys:
        # Such a group runs in virtual partitions, so all its input is by key.
        excluded = {*keys, *whole, *group.writes}
        keys |= {w.stream: w.spread for w in wishes if w.spread and w.stream not in excluded}
    _refuse_mixtures(group, wishes, keys)
    if group.partitions is not None and not keys:
        raise MeshError(
            "MESH-P223",
            f'group "{group.name}" has partitions and reads nothing by key',
            detail="Partitions are those of a key: that of a partition, or the columns of "
            "'group by'.",
            hint="Leave 'partitions' out.",
            position=group.elements[0].tree.position,
        )
    return tuple(_share(stream, keys, whole) for stream in group.reads)


def _both(first: Key, wish: _ReadRequirement, wishes: Sequence[_ReadRequirement]) -> Key | None:
    """The key that satisfies the earlier requirements and ``wish``; None if none does."""
    assert wish.key is not None
    if first.identity == wish.key.identity:
        return first
    if not wish.takes_part or first.computed:
        return None
    common = tuple(name for name in first.attributes if name in wish.key.attributes)
    may_shrink = all(w.takes_part for w in wishes if w.stream == wish.stream and w.key is not None)
    return Key(common) if common and (may_shrink or common == first.attributes) else None


def _share(stream: str, keys: dict[str, Key], whole: set[str]) -> InputPartitioning:
    if stream in keys:
        return InputPartitioning(stream, Strategy.BY_KEY, keys[stream])
    return InputPartitioning(stream, Strategy.ALL if stream in whole else Strategy.ROUND_ROBIN)


def _wishes(group: Group, element: Element) -> list[_ReadRequirement]:
    tree, bound = element.tree, element.bound
    if isinstance(bound, BoundAggregation):
        schema, at = bound.input.schema, bound.input.position
        by = _aggregation_key(group, bound)
        divides = divided_by(bound, [element.bound for element in group.elements])
        if divides is not None:
            return [_ReadRequirement(schema.name, Key((divides,)), False, at)]
        return [_ReadRequirement(schema.name, by, False, at, takes_part=True)]
    if isinstance(tree, Partition) and isinstance(bound, BoundPartition):
        keys = {
            key.stream: partition_key(written, key)
            for written, key in zip(tree.keys, bound.keys, strict=True)
        }
        return [
            _ReadRequirement(stream, keys.get(stream), stream not in keys, tree.position)
            for stream in element.uses.reads
        ]
    assert isinstance(tree, Query), "a tree and what it is bound to are of one kind"
    assert isinstance(bound, BoundQuery), "a tree and what it is bound to are of one kind"
    at = tree.input.position
    if is_divisible(bound):
        joined = _join_key(group, bound, at)
        return [_ReadRequirement(stream, joined, False, at) for stream in element.uses.reads]
    key = _group_key(group, tree, bound)
    source = bound.input
    spread = spread_key(source.schema) if key is None and isinstance(source, BoundStream) else None
    return [
        _ReadRequirement(s, key, False, at, takes_part=True, spread=spread)
        for s in element.uses.reads
    ]


def _aggregation_key(group: Group, aggregation: BoundAggregation) -> Key:
    """The columns that the events of ``aggregation`` must be divided by."""
    if is_in_file(aggregation.annotations):
        raise not_supported(
            f'an aggregation in a file of SQLite in group "{group.name}" {group.width}',
            aggregation.position,
            hint=f"{group.to_unshare}, or use a database with a server.",
        )
    hint = f"{group.to_unshare}, or call it in an earlier query of a group of its own."
    _refuse_functions(aggregation.input, f'in group "{group.name}" {group.width}', hint)
    columns = aggregation.group_by
    attributes = aggregation.input.schema.names
    added = [column for column in columns if column.name not in attributes]
    if not columns or added:
        has_none = "has no 'group by'" if not columns else f'is grouped by "{added[0].name}"'
        raise MeshError(
            "MESH-P208",
            f'aggregation "{aggregation.schema.name}", which {has_none}, in group '
            f'"{group.name}" {group.width}',
            detail="Its events are divided by group-by attributes of the stream.",
            hint=f"{group.to_unshare}, or group by an attribute "
            f"of {aggregation.input.schema.name}.",
            position=aggregation.position,
        )
    for column in columns:
        check_key_name(column.name, column.position)
    return Key(tuple(dict.fromkeys(column.name for column in columns)))


def _join_key(group: Group, query: BoundQuery, position: Position) -> Key:
    """The attribute that the events of a join with an aggregation must be divided by."""
    elements = [element.bound for element in group.elements]
    for aggregation in elements:
        if isinstance(aggregation, BoundAggregation):
            by = divided_by(aggregation, elements)
            for pairs in joins_with(aggregation, query):
                assert by is not None, "other joins are refused"
                check_key_name(pairs[by], position)
                return Key((pairs[by],))
    raise AssertionError("an aggregation is in the group of its joins")


def _refuse_functions(source: BoundStream, where: str, hint: str) -> None:
    """Refuse functions with a state: it is one over all events, whatever 'group by' divides."""
    for handler in source.handlers:
        if isinstance(handler, BoundStreamFunction) and handler.name in WITH_STATE:
            raise not_supported(
                f"stream function {handler.name} {where}", handler.position, hint=hint
            )


def _group_key(group: Group, tree: Query, query: BoundQuery) -> Key | None:
    """The columns that ``query`` must be divided by; None if its events may go anywhere."""
    if query.is_stateless:
        return None
    where = f'in group "{group.name}" {group.width}'
    hint = f"{group.to_unshare}, move the query to another group, or put it into a partition."

    def refused(code: str, what: str, detail: str, at: Position = tree.input.position) -> MeshError:
        return MeshError(code, what, detail=detail, hint=hint, position=at)

    if isinstance(query.input, BoundPattern):
        detail = "Its instances would each see a part of the events only."
        raise refused("MESH-P206", f"{query.input.kind.name.lower()} {where}", detail)
    if isinstance(query.input, BoundJoin):
        detail = "Events that belong together would reach different instances."
        raise refused("MESH-P218", f"join {where}", detail)
    if query.input.window is not None:
        detail = "Each instance would have its own window over a part of the events."
        raise refused("MESH-P207", f"window {where}", detail)
    _refuse_functions(query.input, where, hint)
    if query.rate is not None:
        detail = "Each instance would count its own part of the output."
        raise refused("MESH-P219", f"output rate {where}", detail, tree.position)
    if query.order_by or query.limit is not None or query.offset is not None:
        # The rows of one output would be divided among the instances.
        raise not_supported(f"order by, limit or offset {where}", tree.position, hint=hint)
    if query.having is not None and has_aggregate(query.having):
        # It is one over all groups.
        raise not_supported(f"an aggregator in 'having' {where}", tree.position, hint=hint)
    if not query.has_aggregates:
        raise not_supported(f"a query that keeps state {where}", tree.position, hint=hint)
    if not query.group_by:
        raise MeshError(
            "MESH-P208",
            f"aggregation {where}",
            detail="Each instance would give the value of its part of the events.",
            hint=f"{hint} With 'group by' it is divided by the group-by columns.",
            position=tree.selector.position,
        )
    for variable, column in zip(tree.selector.group_by, query.group_by, strict=True):
        check_key_name(column.name, variable.position)
    return Key(tuple(dict.fromkeys(column.name for column in query.group_by)))


def _refuse_mixtures(group: Group, wishes: list[_ReadRequirement], keys: dict[str, Key]) -> None:
    """Refuse internal keyed streams; beside keyed streams, others are read as a whole."""
    whole = {wish.stream for wish in wishes if wish.wants_all}
    for wish in wishes:
        if wish.stream in keys and wish.stream in group.writes:
            raise MeshError(
                "MESH-P210",
                f'stream "{wish.stream}" is read by key where it is made, in group "{group.name}"',
                detail="An event would have to move from one instance of the group to another.",
                hint="Put this query into another group.",
                position=wish.position,
            )
    for wish in wishes:
        is_plain = wish.stream not in keys and wish.stream not in group.writes
        if is_plain and not wish.wants_all and (keys or wish.stream in whole):
            by_key = f"By key it reads {', '.join(keys)}."
            raise MeshError(
                "MESH-P212",
                f'group "{group.name}" reads stream "{wish.stream}" round robin, and '
                + ("as a whole" if wish.stream in whole else "others by key"),
                detail=by_key if wish.stream not in whole else "A partition reads all of it.",
                hint="Put this query into another group.",
                position=wish.position,
            )
        key = keys.get(wish.stream)
        if key is not None and key.has_ranges and wish.key is None and not wish.wants_all:
            raise MeshError(
                "MESH-P209",
                f'group "{group.name}" reads stream "{wish.stream}" by ranges and as a whole',
                detail="An event in no range goes to no instance, an event in two ranges to both.",
                hint="Put this query into another group.",
                position=wish.position,
            )
        if wish.stream in keys and wish.wants_all:
            raise MeshError(
                "MESH-P209",
                f'group "{group.name}" reads stream "{wish.stream}" by key and as a whole',
                detail="One partition divides it, and another one does not.",
                hint="Put one of them into another group.",
                position=wish.position,
            )


_KEY_NAME: Final = re.compile(r"[A-Za-z0-9_]+\Z")
_WORDS: Final = re.compile(r"[A-Za-z0-9_]+")
_WORDS_MAX: Final = 32
#: Types of attributes by how well they share out events.
_SPREADING: Final = (
    AttributeType.STRING,
    AttributeType.LONG,
    AttributeType.INT,
    AttributeType.DOUBLE,
    AttributeType.FLOAT,
)


@dataclass(frozen=True, slots=True)
class Key:
    """Attributes, in the order of first mention, or a computation on an event."""

    attributes: tuple[str, ...] = ()
    #: SiddhiQL before ``of`` in a partition; empty if attributes are the key.
    computed: str = ""
    #: An event may be in several ranges, or in none: then it is delivered several times, or not at
    #: all.
    has_ranges: bool = False

    def __str__(self) -> str:
        return f"({self.computed or ', '.join(self.attributes)})"

    @property
    def identity(self) -> frozenset[str] | str:
        """Equal for keys that divide alike; the order of attributes does not matter."""
        return self.computed or frozenset(self.attributes)

    def label(self, schema: StreamSchema) -> str:
        """Its name in subjects, unlike that of any other key of the stream."""
        if self.computed:
            words = "_".join(_WORDS.findall(self.computed))[:_WORDS_MAX]
            return f"{words}_{_digest(self.computed)}"
        joined = "_".join(self.attributes)
        if len(self.attributes) > 1 and _readings(joined, schema.names) > 1:
            return f"{joined}_{_digest(','.join(self.attributes))}"
        return joined


def partition_key(written: PartitionKey, bound: BoundKey) -> Key:
    """The key of one stream of a partition.

    Raises:
        MeshError: MESH-P211 for an attribute that can't be part of a subject.
    """
    if isinstance(bound.value, Column):
        check_key_name(bound.value.name, written.position)
        return Key((bound.value.name,))
    if isinstance(written, RangePartition):
        ranges = (
            f"{print_expression(r.condition)} as {print_string(r.label)}" for r in written.ranges
        )
        return Key(computed=" or ".join(ranges), has_ranges=True)
    return Key(computed=print_expression(written.expression))


def spread_key(schema: StreamSchema) -> Key | None:
    """A key that only distributes events: the attribute that most likely has many values."""
    fit = [a for a in schema.attributes if _KEY_NAME.match(a.name) and a.type in _SPREADING]
    best = min(fit, key=lambda a: _SPREADING.index(a.type), default=None)
    return Key((best.name,)) if best is not None else None


def check_key_name(name: str, position: Position) -> None:
    """Refuse an attribute that can't be a key; MESH-P211."""
    if not _KEY_NAME.match(name):
        raise MeshError(
            "MESH-P211",
            f"attribute \"{name}\" can't be a key: it can't be part of a subject",
            hint="Give it another name in a query before this one.",
            position=position,
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _readings(joined: str, names: tuple[str, ...]) -> int:
    """Number of ways to build ``joined`` from ``names`` with ``_`` between."""
    ways = [0] * (len(joined) + 1)
    ways[0] = 1
    for end in range(len(joined)):
        if ways[end] and (end == 0 or joined[end] == "_"):
            start = end + 1 if end else 0
            for name in names:
                if joined.startswith(name, start):
                    ways[start + len(name)] += ways[end]
    return ways[-1]
