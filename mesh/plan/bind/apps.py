"""Binding of a whole app: its definitions, then its queries and partitions in the order written.

A stream without a definition gets its attributes from the first query that inserts into it; so it
is known to the queries after that one, as in the reference engine.

Binding of partitions: the keys of their streams, and the queries inside with their streams.

Binding of a text that can't be read in full: a syntax error hides no error of another statement.

A statement with a syntax error may define names and create streams.  These are known to exist, as
those of a statement with an error of its names or types are, so nothing is reported about them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, assert_never

from mesh.errors import MeshError, MeshErrors, Position
from mesh.language.parser import parse, read_app
from mesh.language.syntax import Partition, Query, RangePartition, ValuePartition
from mesh.language.tokens import Token, TokenKind
from mesh.plan.annotations import check_app, check_partition, refuse_second
from mesh.plan.bind.definitions import bind_definitions
from mesh.plan.bind.names import EVENTS, AppNames, NamedDefinition
from mesh.plan.bind.queries import bind_query
from mesh.plan.bound import BoundApp, BoundKey, BoundPartition, BoundQuery, BoundRange, SourceKind
from mesh.plan.diagnostics import Diagnostics, TooManyErrors, place_of
from mesh.plan.expressions import bind_expression, bind_test
from mesh.plan.scopes import InputScope, NamedSource, Sources, by_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.language.parser import PartialParse
    from mesh.language.syntax import App, PartitionKey
    from mesh.language.tokens import Tokens
    from mesh.model.app import GroupSpec


_UNKNOWN_NAME: Final = ("MESH-L205", "MESH-L217")
_MARKS: Final = ("#", "!")


@dataclass(frozen=True, slots=True)
class Readable:
    """The parts of an app that can be read, with the errors of all its parts."""

    reading: PartialParse
    #: The parts without an error; None after too many errors.
    bound: BoundApp | None
    names: AppNames
    #: In the order of the text.
    errors: tuple[MeshError, ...]


def bind_readable(text: str, cut: Tokens | None = None) -> Readable:
    """Parse ``text``, and bind the statements that can be parsed; ``cut``: see ``read_app``."""
    reading = read_app(text, cut)
    names, problems = AppNames(), Diagnostics()
    unread = list(_named(reading))
    for kind, name, position in unread:
        _declare(names, kind, name, position)
    bound = None
    with contextlib.suppress(TooManyErrors):
        bound = bind_app(reading.app, names, problems)
    # Functions and tables have one name each, which their errors quote.
    quoted = [f'"{name}"' for _, name, _ in unread]
    of_names = [
        error
        for error in problems.errors
        if not (error.code in _UNKNOWN_NAME and any(name in error.message for name in quoted))
    ]
    errors = sorted((*reading.errors, *of_names), key=place_of)
    return Readable(reading, bound, names, tuple(errors))


def parse_bindable(text: str) -> App:
    """The syntax tree of a text.

    Raises:
        MeshErrors: MESH-L1xx for statements that are not SiddhiQL, together with the MESH-L2xx of
            the others.
    """
    reading = read_app(text)
    if reading.errors:
        raise MeshErrors(bind_readable(text).errors)
    return reading.app


def _named(reading: PartialParse) -> Iterator[tuple[str, str, Position]]:
    """Kind, name with its mark and position of what the unread statements may define."""
    for tokens in reading.unread:
        padded = (*tokens, Token(TokenKind.END, "", 0))
        has_fault = any(token.text.lower() == "onerror" for token in tokens)
        for at, (before, token) in enumerate(pairwise(padded)):
            word = before.text.lower() if before.kind is TokenKind.NAME else ""
            if word == "define":
                after = padded[min(at + 2, len(padded) - 1)]
                if _is_name(after):
                    yield token.text.lower(), str(after.value), reading.cursor.place(after)
                    if has_fault:
                        yield "stream", f"!{after.value}", reading.cursor.place(after)
            elif word == "into":
                mark = token.text if token.text in _MARKS else ""
                target = padded[min(at + 2, len(padded) - 1)] if mark else token
                if _is_name(target):
                    yield "stream", f"{mark}{target.value}", reading.cursor.place(target)


def _is_name(token: Token) -> bool:
    return token.kind in (TokenKind.NAME, TokenKind.QUOTED)


def _declare(names: AppNames, kind: str, name: str, position: Position) -> None:
    """Declare a name whose definition has an error."""
    match kind:
        case "table":
            names.tables[name] = NamedDefinition(SourceKind.TABLE, None, position)
        case "window":
            names.windows[name] = NamedDefinition(SourceKind.WINDOW, None, position)
        case "aggregation":
            names.aggregations[name] = NamedDefinition(SourceKind.AGGREGATION, None, position)
        case "stream" | "trigger":
            names.streams.setdefault(name, NamedDefinition(SourceKind.STREAM, None, position))
        case _:
            pass


def bind(app: App) -> BoundApp:
    """Resolve every name and type of ``app``.

    Raises:
        MeshError: MESH-L2xx for a name that is not defined or a part that doesn't fit;
            ``MeshErrors`` for several. An app without a name is bound; its name is empty then.
    """
    problems, names = Diagnostics(), AppNames()
    bound = None
    with contextlib.suppress(TooManyErrors):
        bound = bind_app(app, names, problems)
    problems.raise_any()
    assert bound is not None, "what could not be bound has been told"
    return bound


def bind_app(app: App, names: AppNames, problems: Diagnostics) -> BoundApp:
    """Bind the correct parts of ``app``; errors in the others go to ``problems``.

    ``names`` may have names already: of parts that can't be read.
    """
    check_app(app.annotations, problems)
    defined = bind_definitions(app.definitions, names, problems)
    queries: list[BoundQuery] = []
    partitions: list[BoundPartition] = []
    numbered = QueryNames(problems)
    outside = 0
    for element in app.elements:
        if isinstance(element, Query):
            outside += 1
            name = numbered.name(element, f"query-{outside}")
            query = bind_query(element, name, names, problems)
            if query is not None:
                queries.append(query)
        elif isinstance(element, Partition):
            number = len(partitions) + 1
            inside = [
                numbered.name(q, f"partition-{number}-query-{n}")
                for n, q in enumerate(element.queries, 1)
            ]
            partition = bind_partition(element, inside, names, problems)
            if partition is not None:
                partitions.append(partition)
    streams = {**names.streams, **names.inner}
    return BoundApp(
        app.name or "",
        tuple(stream.schema for stream in streams.values() if stream.schema is not None),
        tuple(queries),
        tuple(defined.tables),
        tuple(defined.windows),
        tuple(defined.triggers),
        tuple(defined.scripts),
        tuple(defined.aggregations),
        tuple(partitions),
        app.annotations,
        tuple(defined.stream_annotations),
        tuple((name, stream.position) for name, stream in streams.items()),
    )


class QueryNames:
    """The names of an app's queries, each given once."""

    def __init__(self, problems: Diagnostics) -> None:
        self._problems = problems
        self._count = 0
        self._taken: set[str] = set()

    def name(self, query: Query, otherwise: str) -> str:
        """The name of ``query``, or ``otherwise`` if it has none.

        A name that is in use is reported as MESH-L212.
        """
        self._count += 1
        query_name = query.name or otherwise
        # Numbers go through the whole app in the engine, and its names collide with given ones.
        for name in {query_name: None, query.name or f"query_{self._count}": None}:
            if name in self._taken:
                self._problems.add(
                    MeshError(
                        "MESH-L212",
                        f'query name "{name}" is given twice',
                        hint="Names of queries are unique in an app; those without one are called "
                        "by their number, from 1: query-1, and query_1 in the reference engine.",
                        position=query.position,
                    )
                )
            self._taken.add(name)
        return query_name


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


def bind_group(spec: GroupSpec) -> BoundApp:
    """The part of an app that a worker runs for ``spec``: its text, parsed and bound.

    A partitioner has no queries; it copies its input to its output.
    """
    return _bound(spec.text)


@lru_cache(maxsize=64)
def _bound(text: str) -> BoundApp:
    """A bound text; it stays when its group is scaled, and is the same for each of its parts."""
    return bind(parse(text))
