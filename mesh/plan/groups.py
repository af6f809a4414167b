"""An app cut into execution groups, and how each shares what it reads.

Queries with one ``@dist(execGroup='g', parallel='n')`` are a group; those without share the group
``default``, of one instance.  With one instance a group reads all events.  With several, queries
without state read round robin, and aggregations with ``group by`` and no window read by the
group-by columns; what else keeps state can't be divided yet and is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position, not_supported
from mesh.language.syntax import Annotation, App, Query, find
from mesh.model import names
from mesh.model.app import Strategy
from mesh.plan.bound import BoundApp, BoundPattern, BoundQuery, BoundStream, has_aggregate
from mesh.plan.scopes import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The group of queries without ``@dist``; saying it in ``@dist`` means the same group.
DEFAULT_GROUP: Final = "default"
#: Groups that the planner adds are called so, and no others.
PARTITIONER_PREFIX: Final = "partition-"
#: A group's name stands in names of instances, keys and producers.
_GROUP_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}\Z")
_KEY_NAME: Final = re.compile(r"[A-Za-z0-9_]+\Z")
PARALLEL_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Share:
    """How a group reads one stream; ``key`` only by key."""

    stream: str
    strategy: Strategy
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """The queries of one execution group, with how it reads its streams."""

    name: str
    parallel: int
    #: In the order written: the tree of each, and what it is bound to.
    queries: tuple[tuple[Query, BoundQuery], ...]
    #: One for each stream that its queries read, internal ones too, in order of first mention.
    shares: tuple[Share, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The streams that its queries read, each once."""
        return _once(name for _, query in self.queries for name in query.input_streams)

    @property
    def writes(self) -> tuple[str, ...]:
        """The streams that its queries insert into, each once."""
        return _once(query.target.name for _, query in self.queries)

    @property
    def is_stateful(self) -> bool:
        """Whether one of its queries keeps state; then the whole group runs as a stateful one."""
        return not all(query.is_stateless for _, query in self.queries)


def cut(app: App, bound: BoundApp) -> tuple[Group, ...]:
    """The groups of ``app``, in the order of their first queries.

    Raises:
        MeshError: MESH-P2xx where ``@dist`` asks for what can't be, MESH-P900 for what can't yet.
    """
    members: dict[str, list[tuple[Query, BoundQuery]]] = {}
    parallels: dict[str, tuple[int, str]] = {}
    for query, bound_query in zip(app.queries, bound.queries, strict=True):
        name, parallel, position = _placed(query)
        first, first_query = parallels.setdefault(name, (parallel, bound_query.name))
        if first != parallel:
            raise MeshError(
                "MESH-P202",
                f'group "{name}" is given two parallelisms',
                detail=f'It is {first} at query "{first_query}" and {parallel} here.',
                hint="Give every query of a group the same; without one it is 1.",
                position=position,
            )
        members.setdefault(name, []).append((query, bound_query))
    groups = [Group(n, parallels[n][0], tuple(queries)) for n, queries in members.items()]
    for group in groups:
        _refuse_loops(group)
    return tuple(Group(g.name, g.parallel, g.queries, _shares(g)) for g in groups)


def _placed(query: Query) -> tuple[str, int, Position]:
    """The group of ``query`` and its parallelism, with where that is said."""
    annotations = [a for a in query.annotations if a.name.lower() == "dist"]
    if not annotations:
        return DEFAULT_GROUP, 1, query.position
    dist = annotations[0]
    if len(annotations) > 1:
        raise MeshError("MESH-P203", "query has two @dist", position=annotations[1].position)
    for key, _ in dist.elements:
        if key is None or key.lower() not in ("execgroup", "parallel"):
            if key is not None and key.lower() == "partitions":
                raise not_supported("@dist(partitions='n')", dist.position)
            raise MeshError(
                "MESH-P203",
                f'@dist has no element "{key}"' if key else "@dist has a text without a key",
                hint=(nearest(key, ("execGroup", "parallel")) if key else None)
                or "Write @dist(execGroup='name', parallel='2').",
                position=dist.position,
            )
    return _group_name(dist), _parallel(dist), dist.position


def _group_name(dist: Annotation) -> str:
    name = dist.get("execGroup")
    if name is None:
        return DEFAULT_GROUP
    if not _GROUP_NAME.match(name) or name.startswith(PARTITIONER_PREFIX):
        raise MeshError(
            "MESH-P204",
            f'group name "{name}" can\'t be used',
            detail="It stands in names of instances and in keys.",
            hint=f"Use letters, digits, '_' and '-'; not '{PARTITIONER_PREFIX}..', which are ours.",
            position=dist.position,
        )
    return name


def _parallel(dist: Annotation) -> int:
    text = dist.get("parallel")
    if text is None:
        return 1
    if not re.fullmatch(r"[0-9]{1,6}", text.strip()) or not 1 <= int(text) <= PARALLEL_MAX:
        raise MeshError(
            "MESH-P205",
            f'parallelism "{text}" is not a whole number from 1 to {PARALLEL_MAX}',
            position=dist.position,
        )
    return int(text)


def _refuse_loops(group: Group) -> None:
    """Refuse queries that read, through others of their own group, what they write."""
    readers: dict[str, list[BoundQuery]] = {}
    for _, query in group.queries:
        for stream in query.input_streams:
            readers.setdefault(stream, []).append(query)
    for tree, query in group.queries:
        seen: set[str] = set()
        ahead = [query.target.name]
        while ahead:
            stream = ahead.pop()
            if stream in query.input_streams:
                raise not_supported(
                    f'a loop inside a group: query "{query.name}" reads what comes of its output',
                    tree.output.position,
                    hint="Put the queries of the loop into different groups with @dist.",
                )
            if stream not in seen:
                seen.add(stream)
                ahead.extend(reader.target.name for reader in readers.get(stream, ()))


def _shares(group: Group) -> tuple[Share, ...]:
    if group.parallel == 1:
        return tuple(Share(stream, Strategy.ALL) for stream in group.reads)
    keys: dict[str, tuple[str, ...]] = {}
    for tree, query in group.queries:
        key = _key(group, tree, query)
        if not key:
            continue
        (stream,) = query.input_streams
        first = keys.setdefault(stream, key)
        if set(first) != set(key):
            raise MeshError(
                "MESH-P209",
                f'group "{group.name}" reads stream "{stream}" by two keys',
                detail=f"They are ({', '.join(first)}) and ({', '.join(key)}).",
                hint="Put one of the queries into another group.",
                position=tree.position,
            )
    _refuse_mixtures(group, keys)
    return tuple(
        Share(s, Strategy.BY_KEY, keys[s]) if s in keys else Share(s, Strategy.ROUND_ROBIN)
        for s in group.reads
    )


def _key(group: Group, tree: Query, query: BoundQuery) -> tuple[str, ...]:
    """The columns that ``query`` must be divided by; empty if its events may go anywhere."""
    if query.is_stateless:
        return ()
    hint = f"Set parallel='1' for group \"{group.name}\", or move the query to another group."
    if isinstance(query.input, BoundPattern):
        raise MeshError(
            "MESH-P206",
            f'pattern in group "{group.name}" with parallelism {group.parallel}',
            detail="Its instances would each see a part of the events only.",
            hint=hint,
            position=tree.input.position,
        )
    assert isinstance(query.input, BoundStream), "the planner refuses joins"
    if query.input.window is not None:
        raise MeshError(
            "MESH-P207",
            f'window in group "{group.name}" with parallelism {group.parallel}',
            detail="Each instance would have a window of its own, over a part of the events.",
            hint=hint,
            position=tree.input.position,
        )
    assert any(has_aggregate(output.expression) for output in query.outputs)
    if not query.group_by:
        raise MeshError(
            "MESH-P208",
            f'aggregation in group "{group.name}" with parallelism {group.parallel}',
            detail="Each instance would give the value of its part of the events.",
            hint=f"{hint} With 'group by' it is divided by the group-by columns.",
            position=tree.selector.position,
        )
    columns = tuple(dict.fromkeys(column.name for column in query.group_by))
    for variable, column in zip(tree.selector.group_by, query.group_by, strict=True):
        if not _KEY_NAME.match(column.name):
            raise MeshError(
                "MESH-P211",
                f"attribute \"{column.name}\" can't be a key: it can't stand in a subject",
                hint="Give it another name in a query before this one.",
                position=variable.position,
            )
    return columns


def _refuse_mixtures(group: Group, keys: dict[str, tuple[str, ...]]) -> None:
    """With keyed streams, all from outside must be keyed, and none of them may come from inside."""
    if not keys:
        return
    reads = [(tree, stream) for tree, query in group.queries for stream in query.input_streams]
    for tree, stream in reads:
        if stream in keys and stream in group.writes:
            raise MeshError(
                "MESH-P210",
                f'stream "{stream}" is read by key where it is made, in group "{group.name}"',
                detail="An event would have to go from one instance of the group to another.",
                hint="Put this query into another group.",
                position=tree.input.position,
            )
    for tree, stream in reads:
        if stream not in keys and stream not in group.writes:
            raise MeshError(
                "MESH-P212",
                f'group "{group.name}" reads stream "{stream}" round robin, and others by key',
                detail=f"By key it reads {', '.join(keys)}.",
                hint="Put this query into another group.",
                position=tree.input.position,
            )


def app_name(app: App) -> str:
    """The app's name, fit for subjects and keys; MESH-P101 or MESH-P102 otherwise."""
    annotation = find(app.annotations, "App:name")
    name = annotation.get() if annotation else None
    if not name:
        raise MeshError(
            "MESH-P101",
            "app has no name",
            hint="Start the text with @App:name('MyApp').",
            position=annotation.position if annotation else Position(1, 1),
        )
    if not names.is_app_name(name):
        raise MeshError(
            "MESH-P102",
            f'app name "{name}" can\'t be used',
            detail="It stands in subjects and in keys.",
            hint="Use letters, digits, '_' and '-', at most 100, a letter or digit first.",
            position=annotation.position if annotation else None,
        )
    return name


def _once(streams: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(streams))
