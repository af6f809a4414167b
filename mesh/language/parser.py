"""Parser from SiddhiQL text to a syntax tree: whole apps, on-demand queries, single expressions.

An error ends its statement but not the parse.  Parsing resumes after the next ``;``, or at a word
that can only start a statement, so one text may have several errors, and the other statements are
known.

Statements that were read before: an edit of a text costs the statements that it changes.

What is read is kept by the text of a statement and its place.  A ``;`` ends a statement, so nothing
after it counts; whether a statement may follow the others is for the parser to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn

from mesh.errors import MeshError, MeshErrors
from mesh.language import expressions
from mesh.language.cursor import Cursor
from mesh.language.definitions import (
    KINDS,
    parse_annotation,
    parse_app_annotation,
    parse_definition,
    sees_app_annotation,
)
from mesh.language.hints import element_hint, refuse_siddhi3
from mesh.language.queries import parse_partition_keys, parse_query, parse_store_query
from mesh.language.syntax import (
    Annotation,
    App,
    Element,
    OnDemandQuery,
    Partition,
    PartitionKey,
    Query,
)

if TYPE_CHECKING:
    from mesh.language.cursor import LayoutRecord
    from mesh.language.syntax import Definition, Expression
    from mesh.language.tokens import Token, Tokens


_STARTS: Final = ("define", "from", "partition")
_MISSING_SEMICOLON: Final = "Is a ';' missing before it?"
#: Maximum number of errors that are collected.
_ERRORS_MAX: Final = 100


def parse_app(text: str) -> App:
    """The syntax tree of a whole app.

    Raises:
        MeshErrors: MESH-L1xx, one for each statement that is not SiddhiQL.
    """
    return parse_with_cursor(text)[0]


def parse_with_cursor(text: str) -> tuple[App, Cursor]:
    """The syntax tree of a whole app, and the cursor that read it, with its layout records."""
    reading = read_app(text)
    if reading.errors:
        raise MeshErrors(reading.errors)
    return reading.app, reading.cursor


@dataclass(frozen=True, slots=True)
class PartialParse:
    """A text as far as it can be read."""

    #: The statements without an error.
    app: App
    errors: tuple[MeshError, ...]
    #: The statements with an error: their tokens, in order.
    unread: tuple[tuple[Token, ...], ...]
    cursor: Cursor


def read_app(text: str, cut: Tokens | None = None) -> PartialParse:
    """The statements of ``text`` that can be parsed, and the errors of the others.

    ``cut``: its tokens, if they are known.
    """
    try:
        refuse_siddhi3(text)
    except MeshError as error:
        return PartialParse(App((), ()), (error,), (), Cursor(text, cut))
    return read_with(Cursor(text, cut))


def read_with(cursor: Cursor) -> PartialParse:
    """As ``read_app``, with a cursor of the caller."""
    return _App(cursor).read()


def parse_on_demand_query(text: str) -> OnDemandQuery:
    """Parse an on-demand query; a ``;`` may follow it.

    Raises:
        MeshErrors: MESH-L1xx for invalid SiddhiQL.
    """
    cursor = Cursor(text)
    try:
        query = parse_store_query(cursor)
        cursor.accept(";")
        _expect_end(cursor, "An on-demand query is one query.")
    except MeshError as error:
        raise MeshErrors((error,)) from None
    return query


def parse_expression(text: str) -> Expression:
    """Parse a single expression.

    Raises:
        MeshErrors: MESH-L1xx for invalid SiddhiQL.
    """
    cursor = Cursor(text)
    try:
        expression = expressions.parse_expression(cursor)
        _expect_end(cursor, None)
    except MeshError as error:
        raise MeshErrors((error,)) from None
    return expression


def _expect_end(cursor: Cursor, hint: str | None) -> None:
    if not cursor.is_at_end:
        cursor.fail("the end of the text", hint=hint)


class _App:
    """State of the parser for one app, with the errors found so far."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._errors: list[MeshError] = []
        self._annotations: list[Annotation] = []
        self._elements: list[Element] = []
        self._has_queries = False
        self._unread: list[tuple[Token, ...]] = []

    def read(self) -> PartialParse:
        cursor = self._cursor
        self._app_annotations()
        while not (self._errors and cursor.is_at_end):
            start = read = cursor.at
            try:
                self._elements.append(self._element())
                read = cursor.at
                if cursor.is_at_end:
                    cursor.layout.unended.add(cursor.at - 1)
                else:
                    self._semicolon()
            except MeshError as error:
                self._note(error)
                self._recover(start, read)
            if cursor.is_at_end or len(self._errors) >= _ERRORS_MAX:
                break
        app = App(tuple(self._annotations), tuple(self._elements))
        return PartialParse(app, tuple(self._errors[:_ERRORS_MAX]), tuple(self._unread), cursor)

    def _note(self, error: MeshError) -> None:
        """Keep an error, unless it is met again where the next statement was looked for."""
        place = error.code, error.position
        if place not in [(previous.code, previous.position) for previous in self._errors[-1:]]:
            self._errors.append(error)

    def _app_annotations(self) -> None:
        cursor = self._cursor
        if sees_app_annotation(cursor):
            cursor.start_element()
        while sees_app_annotation(cursor):
            start = cursor.at
            try:
                self._annotations.append(parse_app_annotation(cursor))
                if cursor.sees(";"):
                    cursor.fail("'define'", hint="No ';' follows annotations.")
            except MeshError as error:
                self._note(error)
                self._recover(start, start)

    def _semicolon(self) -> None:
        """Consume the ``;`` between elements; without one, continue if the next element is here."""
        cursor = self._cursor
        if cursor.accept(";"):
            return
        if cursor.sees("@") or cursor.sees_word(*_STARTS):
            try:
                cursor.expect(";", hint=_MISSING_SEMICOLON)
            except MeshError as error:
                self._note(error)
            return
        cursor.expect(";", hint=element_hint(cursor))

    def _element(self) -> Element:
        cursor = self._cursor
        statement = read_statement(cursor)
        if statement is not None and self._may_follow(statement.tree):
            cursor.skip_to(statement.stop, statement.layout)
            self._has_queries = isinstance(statement.tree, Query)
            return statement.tree
        cursor.start_element()
        annotations = self._element_annotations()
        if cursor.sees_word("define"):
            if self._has_queries:
                raise MeshError(
                    "MESH-L107",
                    "definition follows a query",
                    hint="Move the definitions before the first query.",
                    position=cursor.position,
                )
            return parse_definition(cursor, annotations)
        if not (self._elements or self._errors) and cursor.sees_word("from", "partition"):
            hint = "Define the stream first that it reads: define stream S (a int);"
            cursor.fail("'define'", hint=hint)
        if cursor.sees_word("from"):
            self._has_queries = True
            return parse_query(cursor, annotations)
        if not cursor.sees_word("partition"):
            self._refuse_element()
        self._has_queries = True
        return self._partition(annotations)

    def _may_follow(self, element: Element) -> bool:
        """Whether a definition precedes the queries, or a query follows a definition."""
        if isinstance(element, Query):
            return bool(self._elements or self._errors)
        return not self._has_queries

    def _refuse_element(self) -> NoReturn:
        cursor = self._cursor
        hint = element_hint(cursor)
        if cursor.sees(";"):
            hint = "One ';' too many."
        elif cursor.is_at_end:
            hint = "An app has at least one definition: define stream S (a int);"
        cursor.fail("'define'", "'from'", "'partition'", "'@'", words=_STARTS, hint=hint)

    def _element_annotations(self) -> tuple[Annotation, ...]:
        cursor = self._cursor
        annotations: list[Annotation] = []
        while cursor.sees("@"):
            if sees_app_annotation(cursor):
                raise MeshError(
                    "MESH-L106",
                    "annotation of the app follows its first part",
                    hint="Move @App:.. to the top of the text.",
                    position=cursor.position,
                )
            annotations.append(parse_annotation(cursor))
        return tuple(annotations)

    # Partitions

    def _partition(self, annotations: tuple[Annotation, ...]) -> Partition:
        """``partition with (..) begin .. end``; a mistake in a query doesn't end it."""
        cursor = self._cursor
        position = cursor.position
        cursor.expect_clause("partition")
        keys = self._partition_keys()
        try:
            cursor.expect_clause(
                "begin", hint="Write 'begin' before its queries, 'end' after them."
            )
            cursor.layout.begins.add(cursor.at - 1)
        except MeshError as error:
            if not cursor.sees_word("from") and not cursor.sees("@"):
                raise
            self._note(error)
        cursor.indent = 1
        queries: list[Query] = []
        try:
            while True:
                start = read = cursor.at
                try:
                    queries.append(self._partition_query())
                    read = cursor.at
                    if not cursor.accept(";"):
                        self._expect_end_of_partition()
                except MeshError as error:
                    self._note(error)
                    self._recover(start, read, in_partition=True)
                is_hopeless = len(self._errors) >= _ERRORS_MAX
                if cursor.sees_word("end") or cursor.is_at_end or is_hopeless:
                    break
        finally:
            cursor.indent = 0
        cursor.expect_clause("end", hint="A partition ends with 'end'.")
        return Partition(keys, tuple(queries), annotations, position=position)

    def _partition_keys(self) -> tuple[PartitionKey, ...]:
        """The keys before ``begin``; an error in them doesn't end the partition."""
        cursor = self._cursor
        try:
            return parse_partition_keys(cursor)
        except MeshError as error:
            while not (cursor.is_at_end or cursor.sees(";") or cursor.sees_word("begin")):
                cursor.skip()
            if not cursor.sees_word("begin"):
                raise
            self._note(error)
            return ()

    def _partition_query(self) -> Query:
        cursor = self._cursor
        statement = read_statement(cursor)
        if statement is not None and isinstance(statement.tree, Query):
            cursor.skip_to(statement.stop, statement.layout)
            return statement.tree
        cursor.start_element()
        annotations = self._element_annotations()
        if not cursor.sees_word("from"):
            hint = None
            if cursor.sees_word("define"):
                hint = "Definitions are outside of partitions, before the queries."
            elif cursor.sees_word("partition"):
                hint = "A partition can't be inside another."
            elif cursor.sees_word("end"):
                hint = "A partition has at least one query."
            elif cursor.sees(";"):
                hint = "One ';' too many."
            cursor.fail("'from'", words=("from",), hint=hint)
        return parse_query(cursor, annotations)

    def _expect_end_of_partition(self) -> None:
        cursor = self._cursor
        if cursor.sees_word("end"):
            cursor.layout.unended.add(cursor.at - 1)
            return
        if cursor.sees_word("from") or cursor.sees("@"):
            try:
                cursor.expect(";", hint=_MISSING_SEMICOLON)
            except MeshError as error:
                self._note(error)
            return
        cursor.fail("';'", "'end'", words=("end",))

    # Recovery after an error

    def _recover(self, start: int, read: int, *, in_partition: bool = False) -> None:
        """Advance to a point where a statement may start, at least one token past ``start``.

        That is after a ``;``, or at a word that starts both a statement and a line; in a partition
        also at its ``end``.  The tokens from ``read`` to there are recorded as unread.
        """
        self._skip_statement(start, in_partition=in_partition)
        self._unread.append(self._cursor.tokens[read : self._cursor.at])

    def _skip_statement(self, start: int, *, in_partition: bool) -> None:
        cursor = self._cursor
        if cursor.at == start and not (in_partition and cursor.sees_word("end")):
            if cursor.accept(";"):
                return
            cursor.skip()
        taken = cursor.tokens[start : cursor.at + 1]
        is_definition = any(token.text.lower() == "define" for token in taken)
        borders = ("partition",) if is_definition else ("partition", "from")
        while not cursor.is_at_end:
            if cursor.accept(";"):
                return
            if cursor.sees_word("end") and in_partition:
                return
            if cursor.sees_word("define") and cursor.sees_word(*KINDS, ahead=1):
                return
            if (cursor.sees("@") or cursor.sees_word(*borders)) and self._starts_line():
                return
            cursor.skip()

    def _starts_line(self) -> bool:
        """Whether the next token is the first of its line."""
        cursor = self._cursor
        if cursor.at == 0:
            return True
        before = cursor.tokens[cursor.at - 1]
        lines = cursor.places
        return lines.line(before.start) != lines.line(cursor.peek().start)


#: Former name of ``parse_app``.
parse = parse_app


#: Maximum number of statements that are kept, the text of 7,000 lines; each has some kilobytes.
STATEMENTS_MAX: Final = 1_000
#: Longest statement that is kept; an expression of its length has 100 kilobytes.
_LENGTH_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class ReadStatement:
    """A definition or a query outside of its text."""

    tree: Definition | Query
    layout: LayoutRecord
    #: Index of its ``;`` in the text at hand.
    stop: int


def read_statement(cursor: Cursor) -> ReadStatement | None:
    """The definition or query that is next, with its annotations, up to its ``;``.

    None for one with an error, without a ``;``, with variables in it, or very long.  The cursor
    stays.
    """
    stop = cursor.end_of_statement(_LENGTH_MAX)
    if stop is None:
        return None
    first, last = cursor.peek().start, cursor.tokens[stop].start
    origin = cursor.places.origin(first, last)
    if origin is None:
        return None
    slot = _slot(cursor.text[first:last], *origin, cursor.indent)
    if not slot:
        part = cursor.until(stop)
        try:
            tree = _parse(part)
        except MeshError:
            # The parser reports it, in view of what follows.
            return None
        if tree is None or part.at != stop - cursor.at:
            return None
        slot.append((tree, part.layout))
    tree, layout = slot[0]
    return ReadStatement(tree, layout, stop)


@lru_cache(maxsize=STATEMENTS_MAX)
def _slot(
    text: str, line: int, column: int, indent: int | None
) -> list[tuple[Definition | Query, LayoutRecord]]:
    """The place of what is read from a text at a place, empty at first."""
    return []


def _parse(cursor: Cursor) -> Definition | Query | None:
    cursor.start_element()
    annotations: list[Annotation] = []
    while cursor.sees("@") and not sees_app_annotation(cursor):
        annotations.append(parse_annotation(cursor))
    if cursor.sees_word("define"):
        return parse_definition(cursor, tuple(annotations))
    if cursor.sees_word("from"):
        return parse_query(cursor, tuple(annotations))
    return None
