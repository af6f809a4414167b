"""Binding of partitions: the keys of their streams, and the queries inside with their streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from mesh.errors import MeshError
from mesh.language.syntax import RangePartition, ValuePartition
from mesh.plan.annotations import check_partition, refuse_second
from mesh.plan.bind.names import EVENTS
from mesh.plan.bind.queries import bind_query
from mesh.plan.bound import BoundKey, BoundPartition, BoundRange
from mesh.plan.expressions import bind_expression, bind_test
from mesh.plan.scopes import InputScope
from mesh.plan.sources import NamedSource, Sources, by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.language.syntax import Partition, PartitionKey
    from mesh.plan.bind.names import AppNames
    from mesh.plan.diagnostics import Diagnostics


def bind_partition(
    written: Partition, query_names: Sequence[str], names: AppNames, problems: Diagnostics
) -> BoundPartition | None:
    """A partition; None if something in it has an error, which is reported."""
    failures = problems.failures
    refuse_second(written.annotations, ("purge",), problems)
    for annotation in written.annotations:
        problems.attempt(check_partition, annotation)
    keys: dict[str, BoundKey | None] = {}
    for key in written.keys:
        if key.stream.name in keys:
            problems.add(_duplicate_key(key))
            continue
        keys[key.stream.name] = problems.attempt(_key, key, names, problems)
    outside, names.inner = names.inner, {}
    queries = [
        bind_query(query, name, names, problems)
        for query, name in zip(written.queries, query_names, strict=True)
    ]
    inner, names.inner = names.inner, outside
    if problems.failures != failures:
        return None
    return BoundPartition(
        tuple(key for key in keys.values() if key is not None),
        tuple(query for query in queries if query is not None),
        tuple(stream.schema for stream in inner.values() if stream.schema is not None),
        written.annotations,
        position=written.position,
    )


def _key(key: PartitionKey, names: AppNames, problems: Diagnostics) -> BoundKey | None:
    _, schema = names.readable(key.stream, EVENTS)
    scope = InputScope(
        Sources([NamedSource(schema.name, by_name(schema.attributes))]), names.is_defined
    )
    match key:
        case ValuePartition():
            return BoundKey(schema.name, bind_expression(key.expression, scope, names.vocabulary))
        case RangePartition():
            ranges = []
            for one in key.ranges:
                condition = problems.attempt(
                    bind_test, one.condition, scope, names.vocabulary, "a partition's range"
                )
                if condition is not None:
                    ranges.append(BoundRange(condition, one.label))
            return BoundKey(schema.name, None, tuple(ranges))
        case _:
            assert_never(key)


def _duplicate_key(key: PartitionKey) -> MeshError:
    return MeshError(
        "MESH-L227",
        f'stream "{key.stream}" is divided twice in one partition',
        hint="Give one expression for it, or write another partition.",
        position=key.stream.position,
    )
