"""Statements in queries, ``#rdbms:query`` and ``#rdbms:cud``: a sink that calls, and its answers.

    from S#rdbms:query('DS', 'b int', 'select b from T where a = ?', a)[b > 1]
    select b insert into O

is planned as it would be written with ``http-call``:

    @sink(type='rdbms-call', sink.id='query-1', ..)
    define stream query_1_call (a int);
    @source(type='rdbms-call-response', sink.id='query-1')
    define stream query_1_rows (a int, b int);
    from S select a insert into query_1_call;
    from query_1_rows[b > 1] select b insert into O

A replay repeats what an operator does, and a statement must not be: it changes a database, or finds
other rows than before.  Its answer is an event, which a replay finds in its channel.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from mesh.errors import not_supported
from mesh.functions.catalogue.statements import STATEMENTS, parts_of
from mesh.language.memo import memoized
from mesh.language.syntax import (
    Annotation,
    AttributeDefinition,
    Filter,
    InsertInto,
    JoinInput,
    OutputAttribute,
    Partition,
    PartitionKey,
    Query,
    SelectClause,
    StreamDefinition,
    StreamFunction,
    StreamInput,
    StreamKind,
    StreamReference,
    Variable,
    WindowHandler,
)
from mesh.plan.bind import bind
from mesh.plan.bound import BoundJoin, BoundStream, BoundStreamFunction
from mesh.plan.inserted_sources import with_inserted_sources
from mesh.plan.outside_objects import with_objects
from mesh.plan.second_streams import extended, references
from mesh.plan.sink_objects import with_sink_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.language.syntax import App
    from mesh.language.syntax.apps import Element
    from mesh.model.types import Attribute
    from mesh.plan.bound import BoundApp, BoundPartition, BoundQuery


def as_planned(app: App, bound: BoundApp | None = None, *, of_clients: bool = False) -> App:
    """The app with its statements as sinks and sources, and objects of sources made of texts.

    Streams with sources into which readers' groups insert are divided before.

    It is the same one if it has none of them.

    Args:
        app: any.
        bound: the same app, if it is bound already.
        of_clients: see ``with_objects``.

    Raises:
        MeshError: MESH-P900 for a statement where no query can be divided; of ``bind``.
    """
    divided = with_inserted_sources(with_sink_objects(app))
    texts = with_objects(divided, of_clients=of_clients)
    if texts is not app:
        app, bound = texts, None
    inside = (query for partition in app.partitions for query in partition.queries)
    if not any(map(_has_call, (*app.queries, *inside))):
        return app
    bound = bind(app) if bound is None else bound
    splitter = _Splitter({schema.name for schema in bound.streams})
    queries, partitions = iter(bound.queries), iter(bound.partitions)
    elements: list[Element] = []
    for element in app.elements:
        if isinstance(element, Query):
            bound_query = next(queries)
            element = splitter.split(element, bound_query) if _has_call(element) else element
        elif isinstance(element, Partition):
            element = splitter.divide(element, next(partitions))
        elements.append(element)
    return extended(app, elements, splitter.streams, splitter.queries)


def _calls(node: object) -> Iterator[StreamFunction]:
    """The statements below a node."""
    if isinstance(node, StreamFunction):
        if _name(node) in STATEMENTS:
            yield node
    elif isinstance(node, Query):
        yield from _calls(node.input)
    elif isinstance(node, Filter | WindowHandler):
        # Expressions hold no handlers, and are most of a query.
        return
    elif isinstance(node, tuple):
        for one in node:
            yield from _calls(one)
    elif dataclasses.is_dataclass(node):
        for one in dataclasses.fields(node):
            yield from _calls(getattr(node, one.name))


@memoized
def _has_call(query: Query) -> bool:
    return next(_calls(query), None) is not None


def _name(call: StreamFunction) -> str:
    return f"{call.namespace}:{call.name}" if call.namespace else call.name


@dataclass
class _Splitter:
    """The streams and queries that are added to an app."""

    #: Names of streams.
    taken: set[str]
    #: Names of calls.
    ids: set[str] = field(default_factory=set)
    streams: list[StreamDefinition] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)

    def divide(self, partition: Partition, bound: BoundPartition) -> Partition:
        """A partition whose queries read the answers, by the same keys; the others are added.

        A statement is executed before the partition: what precedes it there is filters, which are
        the same outside.
        """
        added: list[PartitionKey] = []
        queries: list[Query] = []
        asked: set[StreamReference] = set()
        for number, query in enumerate(partition.queries):
            read = query
            if _has_call(query):
                key = _key_of(query, partition)
                others = tuple(one for one in query.annotations if one.name.lower() != "dist")
                outside = replace(query, annotations=others)
                split = self.split(outside, bound.queries[number])
                assert isinstance(split.input, StreamInput), "as the one before it"
                rows = split.input.stream
                added.append(replace(_renamed(key, key.stream, rows), stream=rows))
                asked.add(key.stream)
                read = replace(split, annotations=query.annotations)
            queries.append(read)
        # A stream that no query reads any more may be that of another group.
        left = asked - set(references(tuple(query.input for query in queries)))
        keys = tuple(key for key in partition.keys if key.stream not in left)
        return replace(partition, keys=(*keys, *added), queries=tuple(queries))

    def split(self, query: Query, bound: BoundQuery) -> Query:
        """The part of a query after its statements; the others are added.

        It keeps the name of the query, and so the state of its window.
        """
        source, bound_input, name = query.input, bound.input, self._free_id(bound.name)
        if isinstance(source, JoinInput) and isinstance(bound_input, BoundJoin):
            left = self._side(query, source.left, bound_input.left, name)
            right = self._side(query, source.right, bound_input.right, f"{name}-right")
            query = replace(query, input=replace(source, left=left, right=right))
        elif isinstance(source, StreamInput) and isinstance(bound_input, BoundStream):
            rest = self._rest(query, source, bound_input, name)
            # The rest reads the answers.
            query = replace(_renamed(query, source.stream, rest.stream), input=rest)
        else:
            first_call = next(_calls(query))
            raise not_supported(
                f"{_name(first_call)} in a pattern or an inner query",
                first_call.position,
                hint="Put it into an earlier query of one stream, which inserts into another.",
            )
        annotations = query.annotations
        if query.name is None:
            others = tuple(one for one in annotations if one.name.lower() != "info")
            annotations = (Annotation("info", (("name", bound.name),)), *others)
        return replace(query, annotations=annotations)

    def _side(self, query: Query, side: StreamInput, bound: BoundStream, name: str) -> StreamInput:
        """A side of a join after its statements; its attributes keep their prefix."""
        if next(_calls(side), None) is None:
            return side
        rest = self._rest(query, side, bound, name)
        return replace(rest, alias=side.alias or side.stream.name)

    def _rest(
        self, query: Query, source: StreamInput, bound: BoundStream, name: str
    ) -> StreamInput:
        """An input after its statements, each of which is added: the answers of the last one."""
        attributes = list(bound.schema.attributes)
        stream, handlers = source.stream, source.handlers
        first = calls = 0
        for at, bound_handler in enumerate(bound.handlers[: len(handlers)]):
            handler = handlers[at]
            if isinstance(handler, StreamFunction) and _name(handler) in STATEMENTS:
                assert isinstance(bound_handler, BoundStreamFunction)
                call = _Call(handler, bound_handler, stream, handlers[first:at], tuple(attributes))
                if any(isinstance(one, WindowHandler) for one in call.before):
                    raise not_supported(
                        f"{_name(handler)} behind a window",
                        handler.position,
                        hint="Put it before the window, or into a later query.",
                    )
                calls += 1
                rows = self._add(name if calls == 1 else f"{name}-{calls}", call, query)
                handlers, stream, first = _renamed(handlers, stream, rows), rows, at + 1
            attributes += (
                bound_handler.adds if isinstance(bound_handler, BoundStreamFunction) else ()
            )
        return replace(source, stream=stream, handlers=handlers[first:])

    def _add(self, name: str, call: _Call, query: Query) -> StreamReference:
        """Add a sink with the events of a call, and a source; the stream of the answers."""
        columns, parameters = call.columns()
        sent = self._free(name, "call")
        rows = self._free(name, "rows")
        selected = tuple(OutputAttribute(value, alias) for alias, (value, _) in columns.items())
        place = call.written.position
        parts = parts_of(call.bound.name, call.constants)
        options = {
            "type": "rdbms-call",
            "sink.id": name,
            "datasource": parts.source,
            "statement": parts.statement,
            "parameters": ",".join(parameters),
            "columns": parts.columns,
            "empty": "row" if parts.acknowledges else "none",
        }
        elements = tuple((key, text) for key, text in options.items() if text)
        answers = (("type", "rdbms-call-response"), ("sink.id", name))
        types = [AttributeDefinition(alias, one) for alias, (_, one) in columns.items()]
        attributes = [AttributeDefinition(one.name, one.type) for one in call.attributes]
        attributes += [AttributeDefinition(one.name, one.type) for one in call.bound.adds]
        self.streams += [
            StreamDefinition(sent, tuple(types), (Annotation("sink", elements, position=place),)),
            StreamDefinition(
                rows, tuple(attributes), (Annotation("source", answers, position=place),)
            ),
        ]
        others = tuple(one for one in query.annotations if one.name.lower() != "info")
        self.queries.append(
            Query(
                StreamInput(call.stream, call.before, position=place),
                SelectClause(selected),
                InsertInto(StreamReference(sent)),
                (Annotation("info", (("name", f"{name}-call"),)), *others),
                position=query.position,
            )
        )
        return StreamReference(rows)

    def _free_id(self, name: str) -> str:
        """The name of a query, or one like it if a query of a partition has that name."""
        free_id = next(
            one for n in count(1) if (one := name + (f"-{n}" if n > 1 else "")) not in self.ids
        )
        self.ids.add(free_id)
        return free_id

    def _free(self, name: str, what: str) -> str:
        base = re.sub(r"\W", "_", name) + f"_{what}"
        free_name = next(
            one for n in count(1) if (one := base + (f"_{n}" if n > 1 else "")) not in self.taken
        )
        self.taken.add(free_name)
        return free_name


def _key_of(query: Query, partition: Partition) -> PartitionKey:
    """The key of the stream whose events a query in a partition has statements for.

    Raises:
        MeshError: MESH-P900 for a statement that can't be executed before the partition.
    """
    source = query.input
    first_call, *_, last_call = (*_calls(query), *_calls(query))
    keys = {key.stream: key for key in partition.keys}
    hint = "Put it into a query before the partition, which inserts into a stream."
    if not isinstance(source, StreamInput) or source.stream not in keys:
        what = "in a partition, of a stream that is not divided"
        if isinstance(source, JoinInput):
            what = "in a join in a partition"
        raise not_supported(f"{_name(first_call)} {what}", first_call.position, hint=hint)
    for handler in source.handlers[: source.handlers.index(last_call)]:
        is_call = isinstance(handler, StreamFunction) and _name(handler) in STATEMENTS
        if not is_call and not isinstance(handler, Filter):
            what = "in a partition, after more than a filter"
            raise not_supported(f"{_name(last_call)} {what}", last_call.position, hint=hint)
    return keys[source.stream]


@dataclass(frozen=True, slots=True)
class _Call:
    """A statement in a query."""

    written: StreamFunction
    bound: BoundStreamFunction
    #: The stream of its events, the handlers before it, and the attributes that these leave.
    stream: StreamReference
    before: tuple[Any, ...]
    attributes: tuple[Attribute, ...]

    @property
    def constants(self) -> tuple[object, ...]:
        """The values of its arguments; None for one that is no constant."""
        return tuple(getattr(one, "value", None) for one in self.bound.arguments)

    def columns(self) -> tuple[dict[str, tuple[Any, Any]], list[str]]:
        """Expression and type of each attribute that is sent, and the names of the parameters."""
        entries: dict[str, tuple[Any, Any]] = {
            one.name: (Variable(one.name), one.type) for one in self.attributes
        }
        first, last = parts_of(self.bound.name, self.constants).parameters
        parameters = []
        arguments = self.written.arguments
        for number, argument in enumerate(self.bound.arguments[first:last], first):
            value = arguments[number]
            if isinstance(value, Variable) and value.name in entries:
                parameters.append(value.name)
                continue
            name = next(one for n in count(number) if (one := f"parameter_{n}") not in entries)
            entries[name] = (value, argument.type)
            parameters.append(name)
        return entries, parameters


def _renamed(node: object, old: StreamReference, new: StreamReference) -> Any:
    """A node whose attributes of a stream are those of another one."""
    if isinstance(node, Variable):
        is_match = (node.source, node.kind) == (old.name, old.kind)
        return replace(node, source=new.name, kind=StreamKind.PLAIN) if is_match else node
    if isinstance(node, tuple):
        return tuple(_renamed(one, old, new) for one in node)
    if not dataclasses.is_dataclass(node) or isinstance(node, type | Annotation):
        return node
    changed = {
        one.name: value
        for one in dataclasses.fields(node)
        if (value := _renamed(was := getattr(node, one.name), old, new)) is not was and value != was
    }
    return replace(node, **changed) if changed else node
