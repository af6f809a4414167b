"""One version of a text with its analysis: tokens, tree, names, types and plan, each made once.

The analysis has the lines of ``stable_lines``; answers and errors have those of the text.

The plan has the group of each query, in a line: strategy, partitions, instances, state.

Lines that edits elsewhere in a text do not change, for the analysis of a text that is edited.

Trees are kept by their text and their place, and so is what is known of them.  Were the place a
line of the text, a new line would move all statements below it, and each would be read, bound and
planned again.  Here each statement has lines of its own, which it keeps as long as its text is the
same; answers are converted to lines of the text.

    line of the text   statement                     stable lines
    1                  define stream S (a int);      7 << 32
    2, 3               from S select a               9 << 32, (9 << 32) + 1
                       insert into T;
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property, lru_cache
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError, Position, all_errors
from mesh.language.chunks import chunks_of, tokenize_chunks
from mesh.language.cursor import Cursor
from mesh.language.layout import canonical
from mesh.language.memo import memoized
from mesh.language.naming import named
from mesh.language.parser import STATEMENTS_MAX
from mesh.language.substitution import Places, SubstitutedText
from mesh.language.syntax import Annotation
from mesh.language.tokens import TokenKind
from mesh.language_service.symbols import Symbols, symbols_of
from mesh.model.app import Strategy
from mesh.model.types import StreamSchema
from mesh.plan.bind import Readable, bind_readable
from mesh.plan.bound import (
    AggregateCall,
    BoundPattern,
    BoundQuery,
    BoundStream,
    BoundStreamFunction,
    walk,
)
from mesh.plan.build import plan, plan_bound
from mesh.plan.dependencies import WITH_STATE
from mesh.plan.diagnostics import place_of
from mesh.plan.groups import app_name, split_app
from mesh.plan.notes import misspelt_annotations, noted_options, unread_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mesh.language.syntax import App
    from mesh.language.tokens import Token
    from mesh.model.app import GroupInput, GroupSpec
    from mesh.plan.build import AppPlan


#: Code of valid SiddhiQL that this version does not run.
NOT_RUN_YET: Final = "MESH-P900"


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query and its group."""

    #: Of its ``from``.
    position: Position
    bound: BoundQuery
    group: GroupSpec

    @property
    def line(self) -> str:
        """``group watch, 2 instances | Cards by key card, 8 partitions | pattern, avg``."""
        group = self.group
        count = f"{group.parallel} instance{'s' if group.parallel != 1 else ''}"
        reads = [_read(one) for one in group.inputs]
        return " | ".join([f"group {group.name}, {count}", *reads, state_of(self.bound)])


def planned_queries(app: App, plan: AppPlan) -> Iterator[PlannedQuery]:
    """Each query of a planned app with its group."""
    specs = {spec.name: spec for spec in plan.spec.groups}
    planned = {id(element.tree) for group in plan.groups for element in group.elements}
    # The plan may be that of another tree, whose places and queries are not those of the text.
    is_of_app = planned and planned <= {id(element) for element in app.elements}
    for group in plan.groups if is_of_app else split_app(app, plan.bound):
        for tree, bound in group.queries:
            yield PlannedQuery(tree.position, bound, specs[group.name])


def state_of(query: BoundQuery) -> str:
    """The state that a query keeps: ``state: window time, avg``; ``no state``."""
    states: dict[str, None] = {}
    match query.input:
        case BoundPattern():
            states[query.input.kind.name.lower()] = None
        case BoundStream():
            sides = [query.input]
        case _:
            states["join"] = None
            sides = [query.input.left, query.input.right]
    if not isinstance(query.input, BoundPattern):
        for side in sides:
            if side.window is not None:
                states[f"window {side.window.name}"] = None
            for handler in side.handlers:
                if isinstance(handler, BoundStreamFunction) and handler.name in WITH_STATE:
                    states[handler.name] = None
    for output in query.outputs:
        for part in walk(output.expression):
            if isinstance(part, AggregateCall):
                states[part.function] = None
    if query.rate is not None:
        states["output rate"] = None
    if query.is_stateless:
        return "no state"
    return f"state: {', '.join(states)}" if states else "no state of its own"


def _read(one: GroupInput) -> str:
    channel = one.channel
    name = channel.stream.name
    match one.strategy:
        case Strategy.ALL:
            return f"{name} all"
        case Strategy.ROUND_ROBIN:
            return f"{name} round-robin"
        case Strategy.BY_KEY:
            return f"{name} by key {channel.key_text}, {channel.partitions} partitions"


def unchanged(text: str) -> str:
    """The text itself, for texts without variables and references."""
    return text


@dataclass(frozen=True)
class Document:
    """A text and everything that is known about it.

    Analysis is lazy: tokens take a tenth of the time of the tree, and the tree a third of that of
    the plan.
    """

    text: str
    #: Name of an app without ``@App:name``.
    name: str = ""
    #: Fills variables and types of references in; raises ``MeshError`` where that fails.
    fill: Callable[[str], str] = unchanged

    # The text as written

    @cached_property
    def written(self) -> Cursor:
        """The tokens of the text as it is written, with its variables."""
        return Cursor(self.text)

    @cached_property
    def places(self) -> Places:
        """Converter between offsets into the text and places."""
        return Places(self.text)

    def slice(self, position: Position) -> str:
        """The part of the text at ``position``."""
        start = self.places.offset(position.line, position.column)
        return self.text[start : start + position.length]

    # Stable lines

    @cached_property
    def _stable(self) -> tuple[StableText, StableLines]:
        return stable(self.text)

    def stable_place(self, line: int, column: int) -> tuple[int, int]:
        """The place in the analysis of a place in the text."""
        return self._stable[1].place(line, column)

    def in_text(self, position: Position) -> Position:
        """The position in the text of one of the analysis."""
        return self._stable[1].written(position)

    @cached_property
    def formatted(self) -> str | None:
        """The text as ``mesh format`` has it; None for one with syntax errors."""
        try:
            return canonical(self._stable[0])
        except MeshError:
            return None

    # Analysis

    @cached_property
    def _filled(self) -> str | MeshError:
        try:
            return named(self.fill(self._stable[0]), self.name)
        except MeshError as error:
            return error

    @cached_property
    def readable(self) -> Readable | None:
        """The statements that can be read; None where variables have no value."""
        filled = self._filled
        if isinstance(filled, MeshError):
            return None
        return bind_readable(filled, tokenize_chunks(filled))

    @cached_property
    def _planned(self) -> AppPlan | MeshError | None:
        """The plan, or its errors; None for a text with other errors."""
        filled, readable = self._filled, self.readable
        if isinstance(filled, MeshError):
            return None
        if readable is None or readable.errors or readable.bound is None:
            return None
        try:
            tree, text = readable.reading.app, str(filled)
            # A name that is no part of a subject is written otherwise before the app is bound.
            if app_name(tree) != tree.name:
                return plan(filled)
            return plan_bound(text, tree, readable.bound)
        except MeshError as error:
            return error

    @property
    def plan(self) -> AppPlan | None:
        """The plan of a text without errors."""
        result = self._planned
        return None if isinstance(result, MeshError) else result

    @cached_property
    def problems(self) -> tuple[MeshError, ...]:
        """All errors, in the order of the text; ``NOT_RUN_YET`` is a warning."""
        errors = [error.moved(self.in_text) for error in self._errors]
        return tuple(sorted(errors, key=place_of))

    @property
    def _errors(self) -> tuple[MeshError, ...]:
        if isinstance(self._filled, MeshError):
            return all_errors(self._filled)
        readable = self.readable
        assert readable is not None, "the text has been filled"
        if readable.errors:
            return (*self._of_the_name, *readable.errors)
        result = self._planned
        return all_errors(result) if isinstance(result, MeshError) else ()

    @property
    def _of_the_name(self) -> tuple[MeshError, ...]:
        """The error of the app's name, of a text with other errors."""
        readable = self.readable
        if readable is None or readable.reading.app.name is None:
            return ()
        try:
            app_name(readable.reading.app)
        except MeshError as error:
            return (error,)
        return ()

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Parts that run to no effect, a sentence each."""
        app_plan, readable = self.plan, self.readable
        if app_plan is None or readable is None or readable.bound is None:
            return ()
        # The app as written: its plan may have sources and sinks in the place of statements.
        bound = readable.bound
        misspelt = misspelt_annotations(bound)
        return (*misspelt, *unread_sources(bound, app_plan.spec), *noted_options(bound))

    @cached_property
    def symbols(self) -> Symbols:
        """The symbols that the names of the text refer to."""
        if self.readable is None:
            return Symbols()
        return symbols_of(self.readable, self.token_index)

    @cached_property
    def planned_queries(self) -> tuple[PlannedQuery, ...]:
        """The queries with their groups; none of a text with an error."""
        app_plan, readable = self.plan, self.readable
        if app_plan is None or readable is None:
            return ()
        return tuple(planned_queries(readable.reading.app, app_plan))

    @cached_property
    def types(self) -> Mapping[tuple[int, int], str]:
        """The type of each bound expression by stable place; of an operator its result's."""
        readable = self.readable
        return _types(readable.bound) if readable is not None else {}

    def analyse(self) -> None:
        """Make all that answers need."""
        _ = self.problems, self.notes, self.symbols, self.types, self.planned_queries

    @cached_property
    def token_index(self) -> Callable[[tuple[int, int]], int | None]:
        """The index of the token that starts at a stable place, of those that were read."""
        filled, lines = self._filled, self._stable[1]
        if self.readable is None:
            return lambda _: None
        cursor = self.readable.reading.cursor
        tokens = cursor.tokens
        if isinstance(filled, str) and "${" not in self.text and filled.endswith(self.text):
            # Nothing is filled in but a name before all.
            moved = len(filled) - len(self.text)
            starts = [token.start - moved for token in tokens]

            def find(place: tuple[int, int]) -> int | None:
                offset = lines.offset_of(place)
                index = bisect_left(starts, offset)
                return index if index < len(starts) and starts[index] == offset else None

            return find
        # The later of two in one place counts: a name that was filled in is before all others.
        at = cursor.places.at
        return {at(token.start): index for index, token in enumerate(tokens)}.get

    def token_at(self, line: int, column: int) -> int | None:
        """Index of the token that holds a place or ends there; a name before a symbol."""
        if self.readable is None:
            return None
        cursor = self.readable.reading.cursor
        first, last = (self.places.offset(line, one) for one in (1, column))
        places = (self._stable[1].at(offset) for offset in range(last, first - 1, -1))
        found = (index for place in places if (index := self.token_index(place)) is not None)
        near = islice(found, 2)
        holding = [i for i in near if _ends(cursor.tokens[i], cursor) >= column]
        names = [i for i in holding if cursor.tokens[i].kind is not TokenKind.SYMBOL]
        return next(iter(names or holding), None)


def _types(root: object) -> dict[tuple[int, int], str]:
    by_place: dict[tuple[int, int], str] = {}
    pending: list[Any] = [root]
    while pending:
        part = pending.pop()
        if isinstance(part, tuple):
            pending.extend(part)
            continue
        if isinstance(part, BoundQuery) and part is not root:
            by_place.update(_types_of_query(part))
            continue
        kind: type = type(part)
        names = _parts_of(kind)
        if "type" in names and "position" in names and part.type is not None:
            position = part.position
            if position.line:
                by_place[position.line, position.column] = str(part.type)
        pending.extend([getattr(part, name) for name in names])
    return by_place


@memoized
def _types_of_query(query: BoundQuery) -> dict[tuple[int, int], str]:
    return _types(query)


@cache
def _parts_of(kind: type) -> tuple[str, ...]:
    """The fields of a kind of bound parts; none of those in which no expression is."""
    is_leaf = issubclass(kind, Annotation | Position | StreamSchema) or not is_dataclass(kind)
    return () if is_leaf else tuple(field.name for field in fields(kind))


def _ends(token: Token, cursor: Cursor) -> int:
    at = cursor.place(token)
    return at.column + at.length


#: Bits of the line in its statement; the number of the statement is above them.
_BITS: Final = 32
_NUMBERS: Final = count(1)


@lru_cache(maxsize=4 * STATEMENTS_MAX)
def _number(statement: str, column: int, before: int) -> int:
    """The number of a statement that starts at a column, with so many equal ones before it."""
    return next(_NUMBERS)


class StableText(SubstitutedText):
    """A text whose places have stable lines."""

    __slots__ = ()


def stable(text: str) -> tuple[StableText, StableLines]:
    """The text with places of stable lines, and these."""
    result, lines = StableText(text), StableLines(text)
    result.places = lines
    return result, lines


class StableLines(Places):
    """Converter from offsets to stable lines and columns, and from these to lines of the text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: Offset of each statement, and what its stable lines are above those of the text.
        self._first: list[int] = []
        self._above: list[int] = []
        #: The line of the text in which a statement starts, by its number.
        self._line_of: dict[int, int] = {}
        #: The statement of the last lookup.
        self._last = 0
        equal: Counter[tuple[str, int]] = Counter()
        for start, chunk in chunks_of(text):
            line, column = super().at(start)
            key = chunk, column
            number = _number(*key, equal[key])
            equal[key] += 1
            self._first.append(start)
            self._above.append((number << _BITS) - line)
            self._line_of[number] = line

    def _statement(self, offset: int) -> int:
        """Index of the statement that an offset is in."""
        first, last = self._first, self._last
        is_last = last + 1 == len(first)
        if not (first[last] <= offset and (is_last or offset < first[last + 1])):
            self._last = last = max(0, bisect_right(first, offset) - 1)
        return last

    def of(self, start: int, stop: int) -> Position:
        """The position of ``text[start:stop]``; see ``Places``."""
        at = super().of(start, stop)
        return Position(at.line + self._above[self._statement(start)], at.column, at.length)

    def at(self, offset: int) -> tuple[int, int]:
        """The stable line and the column of an offset."""
        line, column = super().at(offset)
        return line + self._above[self._statement(offset)], column

    def origin(self, start: int, stop: int) -> tuple[int, int] | None:
        """The place of a range in one statement; see ``Places``."""
        return self.at(start) if self._statement(start) == self._statement(stop) else None

    def place(self, line: int, column: int) -> tuple[int, int]:
        """The stable line and the column of a place in the text; of one outside the nearest."""
        return self.at(self.offset(line, column))

    def offset_of(self, place: tuple[int, int]) -> int:
        """The offset of a stable line and a column; -1 for a place of no statement."""
        line, column = place
        number = line >> _BITS
        first = self._line_of.get(number)
        return -1 if first is None else self.offset(first + line - (number << _BITS), column)

    def written(self, position: Position) -> Position:
        """The position in the text of one with a stable line."""
        number, line = position.line >> _BITS, position.line & ((1 << _BITS) - 1)
        if not number:
            return position
        return Position(self._line_of[number] + line, position.column, position.length)
