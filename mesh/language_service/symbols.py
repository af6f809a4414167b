"""Symbols of a text: what each name in it refers to, as the binder resolves names.

A symbol is a stream, table, window .. (one namespace), a function of the app, a query, an alias of
an input, or an attribute of one of these. The output of a query has the attributes of the stream
or table that it goes to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, cast

from mesh.language.memo import memoized
from mesh.language.syntax import (
    AbsentElement,
    AggregationDefinition,
    AnonymousInput,
    Binary,
    Call,
    CountElement,
    DeleteFrom,
    EventElement,
    EventReference,
    EveryElement,
    Filter,
    FunctionDefinition,
    InsertInto,
    InTable,
    JoinInput,
    Literal,
    LogicalElement,
    NextElement,
    Partition,
    Query,
    RangePartition,
    ReturnEvents,
    StateInput,
    StreamInput,
    StreamKind,
    StreamReference,
    TriggerDefinition,
    Unary,
    UpdateTable,
    ValuePartition,
    Variable,
)
from mesh.language.tokens import TokenKind
from mesh.language_service.annotations import annotated_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mesh.errors import Position
    from mesh.language.cursor import Cursor
    from mesh.language.syntax import (
        App,
        Definition,
        Expression,
        Handler,
        QueryInput,
        SelectClause,
        StateElement,
    )
    from mesh.plan.bind import Readable
    from mesh.plan.bind.names import AppNames

    _LookUp = Callable[["_Resolver", str], object]


class SymbolKind(StrEnum):
    """Kind of a symbol; the values are the words of answers."""

    #: A stream, table, window, trigger or aggregation: they share one namespace.
    NAMED = "name"
    FUNCTION = "function"
    QUERY = "query"
    #: ``e1=S``, ``S as s``.
    ALIAS = "alias"
    ATTRIBUTE = "attribute"


@dataclass(frozen=True, slots=True)
class Symbol:
    """The thing that a name refers to."""

    kind: SymbolKind
    name: str
    #: Of an attribute its stream; of an alias and of an inner stream the query or partition.
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A name in the text."""

    symbol: Symbol
    #: The name alone, without prefix and mark.
    position: Position
    is_definition: bool = False
    #: The output attribute that a selected attribute without ``as`` names as well.
    output: Symbol | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """A thing whose attributes an expression may name."""

    #: Prefixes that mean it, with their marks.
    names: tuple[str, ...]
    #: The stream, table ..
    id: str
    attributes: Mapping[str, Symbol]
    #: Its alias; None if its own name is the prefix.
    alias: Symbol | None = None


@dataclass
class Symbols:
    """All names of a text."""

    occurrences: list[Occurrence] = field(default_factory=list)
    #: Attributes of each stream, table .. by its id, in order.
    attributes: dict[str, dict[str, Symbol]] = field(default_factory=dict)
    _same: dict[Symbol, Symbol] = field(default_factory=dict)

    def at(self, position: tuple[int, int]) -> Occurrence | None:
        """The name that holds a place or ends there."""
        line, column = position
        return next(
            (
                one
                for one in self.occurrences
                if one.position.line == line
                and one.position.column <= column <= one.position.column + one.position.length
            ),
            None,
        )

    def link(self, one: Symbol, other: Symbol) -> None:
        """Record that ``select *`` gives both one name."""
        self._same[self.root(one)] = self.root(other)

    def root(self, symbol: Symbol) -> Symbol:
        """The symbol that stands for all that have one name."""
        while symbol in self._same and self._same[symbol] != symbol:
            symbol = self._same[symbol]
        return symbol

    def of(self, symbol: Symbol) -> list[Occurrence]:
        """The occurrences of a symbol and of those that have one name with it."""
        root = self.root(symbol)
        return [
            one
            for one in self.occurrences
            if self.root(one.symbol) == root
            or (one.output is not None and self.root(one.output) == root)
        ]

    def definition(self, occurrence: Occurrence) -> Occurrence | None:
        """The definition of a name; of an alias of a stream its own."""
        symbol = occurrence.symbol
        matches = [one for one in self.occurrences if symbol in (one.symbol, one.output)]
        defined = [one for one in matches if one.is_definition or one.output == symbol]
        defined = defined or [one for one in self.of(symbol) if one.is_definition]
        return defined[0] if defined else None


def symbols_of(readable: Readable, token_index: Callable[[tuple[int, int]], int | None]) -> Symbols:
    """The names of the statements that can be read; ``token_index``: of a token by its place."""
    resolver = _Resolver(token_index, readable.reading.cursor, readable.names)
    app = readable.reading.app
    resolver.app(app.definitions, queries_of(app))
    return resolver.symbols


def queries_of(app: App) -> Iterator[tuple[Query, Partition | None]]:
    """Every query, with the partition that it is in."""
    for element in app.elements:
        if isinstance(element, Query):
            yield element, None
        elif isinstance(element, Partition):
            for query in element.queries:
                yield query, element


def events_of(element: StateElement) -> list[EventElement]:
    """The events of a pattern, in the order of the text."""
    match element:
        case EventElement():
            return [element]
        case CountElement() | AbsentElement():
            return [element.event]
        case EveryElement():
            return events_of(element.element)
        case LogicalElement():
            return [*events_of(element.left), *events_of(element.right)]
        case NextElement():
            return [event for part in element.elements for event in events_of(part)]


@dataclass(frozen=True, slots=True)
class _Resolved:
    """The names of a query, for the answers that it got about other statements."""

    partition: str
    answers: Mapping[tuple[_LookUp, str], object]
    occurrences: Sequence[Occurrence]
    links: Sequence[tuple[Symbol, Symbol]]
    #: Attributes of the stream that it inserts into, if it is the first one, by its id.
    outputs: Mapping[str, dict[str, Symbol]]


@memoized
def _resolved(_: Query) -> list[_Resolved]:
    """The place of the names that a query had last, empty at first."""
    return []


class _Resolver:
    """Walks the tree in the order of the text, as the binder does."""

    def __init__(
        self,
        token_index: Callable[[tuple[int, int]], int | None],
        cursor: Cursor,
        names: AppNames,
    ) -> None:
        self.symbols = Symbols()
        self._cursor = cursor
        self._token_index = token_index
        self._names = names
        self._asked: dict[tuple[_LookUp, str], object] = {}
        self._links: list[tuple[Symbol, Symbol]] = []
        #: Names that a definition declares.
        self._defined: set[str] = set()
        self._functions: dict[str, Symbol] = {}
        #: The partition at hand, in the ids of inner streams.
        self._partition = ""
        self._query = ""

    def app(
        self,
        definitions: Iterable[Definition],
        queries: Iterable[tuple[Query, Partition | None]],
    ) -> None:
        written = tuple(definitions)
        for definition in written:
            self._declare(definition)
        for definition in written:
            if isinstance(definition, AggregationDefinition):
                self._aggregation(definition)
        last = None
        for query, partition in queries:
            if partition is not last and partition is not None:
                self._start_partition(partition)
            last = partition
            self._partition = _key(partition.position) if partition is not None else ""
            self._known_query(query)

    # Definitions

    def _declare(self, definition: Definition) -> None:
        at = self._index(definition.position)
        if isinstance(definition, FunctionDefinition):
            symbol = Symbol(SymbolKind.FUNCTION, definition.name)
            self._functions[definition.name] = symbol
            self._note(symbol, at, is_definition=True)
            return
        name = definition.name
        self._defined.add(name)
        self._note(Symbol(SymbolKind.NAMED, name), at, is_definition=True)
        if isinstance(definition, AggregationDefinition):
            return
        attributes = self.symbols.attributes.setdefault(name, {})
        if isinstance(definition, TriggerDefinition):
            attributes["triggered_time"] = Symbol(SymbolKind.ATTRIBUTE, "triggered_time", name)
            return
        for attribute in definition.attributes:
            symbol = Symbol(SymbolKind.ATTRIBUTE, attribute.name, name)
            attributes[attribute.name] = symbol
            self._note(symbol, self._index(attribute.position), is_definition=True)
        if not definition.annotations or at is None:
            return
        first = self._index(definition.annotations[0].position)
        for attribute_name, place in annotated_names(self._cursor, first or at, at):
            if attribute_name in attributes:
                self.symbols.occurrences.append(Occurrence(attributes[attribute_name], place))

    def _aggregation(self, definition: AggregationDefinition) -> None:
        self._query = _key(definition.position)
        source = self._stream_input(definition.input)
        outputs = self._selector(definition.selector, [source], definition.name)
        self.symbols.attributes[definition.name] = outputs
        if definition.aggregate_by is not None:
            self._variable(definition.aggregate_by, [source])

    def _start_partition(self, partition: Partition) -> None:
        for key in partition.keys:
            read = self._input_of(key.stream)
            self._reference(key.stream)
            match key:
                case ValuePartition():
                    self._expression(key.expression, [read])
                case RangePartition():
                    for one in key.ranges:
                        self._expression(one.condition, [read])

    # Queries

    def _known_query(self, query: Query) -> None:
        """Resolve a query, or take its names of an earlier version of the text."""
        for known in list(_resolved(query)):
            if known.partition == self._partition and all(
                look_up(self, name) == answer for (look_up, name), answer in known.answers.items()
            ):
                self._take(known)
                return
        self._asked, self._links = {}, []
        before = len(self.symbols.occurrences)
        outputs = self._whole_query(query)
        occurrences = self.symbols.occurrences[before:]
        known = _Resolved(self._partition, self._asked, occurrences, self._links, outputs)
        self._take(known, is_new=True)
        _resolved(query)[:] = [known]

    def _take(self, known: _Resolved, *, is_new: bool = False) -> None:
        if not is_new:
            self.symbols.occurrences += known.occurrences
            for one, other in known.links:
                self.symbols.link(one, other)
        for id_, attributes in known.outputs.items():
            self._defined.add(id_)
            self.symbols.attributes.setdefault(id_, attributes)

    def _whole_query(self, query: Query) -> dict[str, dict[str, Symbol]]:
        """Note the names of a query; the attributes of the stream that it inserts into."""
        self._query = _key(query.position)
        self._query_name(query)
        inputs = self._inputs(query.input)
        output = query.output
        target = self._target(output)
        outputs = self._selector(query.selector, inputs, target)
        match output:
            case InsertInto():
                self._reference(output.stream, inserts=True)
                return {self._id(output.stream): outputs}
            case UpdateTable() | DeleteFrom():
                self._reference(output.table)
                table = self._input_of(output.table)
                bare = Input((), target, outputs)
                scope = [bare, replace(table, attributes=table.attributes)]
                for one in output.assignments if isinstance(output, UpdateTable) else ():
                    self._variable(one.attribute, [table])
                    self._expression(one.value, scope, prefixed=table)
                self._expression(output.on, scope, prefixed=table)
            case ReturnEvents():
                pass
        return {}

    # Questions of a query about other statements

    def _ask(self, look_up: _LookUp, name: str) -> object:
        return self._asked.setdefault((look_up, name), look_up(self, name))

    def _attributes_of(self, id_: str) -> dict[str, Symbol] | None:
        return self.symbols.attributes.get(id_)

    def _is_defined(self, id_: str) -> bool:
        return id_ in self._defined

    def _function(self, name: str) -> Symbol | None:
        return self._functions.get(name)

    def _schema(self, reference: str) -> tuple[str, ...]:
        definition = self._names.find(reference)
        schema = definition.schema if definition is not None else None
        return tuple(one.name for one in schema.attributes) if schema is not None else ()

    def _query_name(self, query: Query) -> None:
        info = next((a for a in query.annotations if a.name.lower() == "info"), None)
        at = self._index(info.position) if info is not None else None
        name = query.name
        if at is None or name is None:
            return
        tokens = self._cursor.tokens
        while tokens[at].kind is not TokenKind.END and tokens[at].value != name:
            at += 1
        token = tokens[at]
        if token.kind is TokenKind.STRING:
            quote = (len(token.text) - len(name)) // 2
            start = token.start + quote
            place = self._cursor.places.of(start, start + len(name))
            symbol = Symbol(SymbolKind.QUERY, name)
            self.symbols.occurrences.append(Occurrence(symbol, place, is_definition=True))

    def _target(self, output: object) -> str:
        """Id of the owner of the output attributes."""
        match output:
            case InsertInto():
                return self._id(output.stream)
            case UpdateTable() if output.inserts or not output.assignments:
                return output.table.name
            case _:
                return self._query

    def _inputs(self, read: QueryInput) -> list[Input]:
        match read:
            case StreamInput():
                return [self._stream_input(read)]
            case JoinInput():
                sides = [self._stream_input(read.left), self._stream_input(read.right)]
                for part in (read.on, read.per):
                    if part is not None:
                        self._expression(part, sides)
                if read.within is not None:
                    for bound in (read.within.start, read.within.end):
                        if bound is not None:
                            self._expression(bound, sides)
                return sides
            case StateInput():
                inputs: list[Input] = []
                for event in events_of(read.element):
                    self._event(event, inputs)
                return inputs
            case AnonymousInput():
                return []

    def _stream_input(self, read: StreamInput) -> Input:
        self._reference(read.stream)
        source = self._input_of(read.stream)
        if read.alias is not None:
            symbol = Symbol(SymbolKind.ALIAS, read.alias, self._query)
            at = self._after_as(self._index(read.stream.position))
            self._note(symbol, at, is_definition=True)
            source = replace(source, names=(read.alias, *source.names), alias=symbol)
        return self._handlers(read.handlers, source, [source])

    def _event(self, event: EventElement, earlier: list[Input]) -> None:
        self._reference(event.stream)
        source = self._input_of(event.stream)
        if event.reference is not None:
            symbol = Symbol(SymbolKind.ALIAS, event.reference, self._query)
            self._note(symbol, self._index(event.position), is_definition=True)
            source = replace(source, names=(event.reference,), alias=symbol)
        # A filter knows its own attributes without a prefix, others with theirs.
        source = self._handlers(event.handlers, source, [source, *earlier])
        earlier.append(source)

    def _handlers(self, handlers: Sequence[Handler], source: Input, inputs: list[Input]) -> Input:
        for handler in handlers:
            if isinstance(handler, Filter):
                self._expression(handler.condition, inputs)
                continue
            for argument in handler.arguments:
                self._expression(argument, inputs)
            added = self._added(handler)
            if added:
                source = replace(source, attributes={**source.attributes, **added})
                inputs = [source, *inputs[1:]]
        return source

    def _added(self, handler: Handler) -> dict[str, Symbol]:
        from mesh.functions.catalogue import DOCUMENTED_STREAM_FUNCTIONS, STREAM_FUNCTIONS

        assert not isinstance(handler, Filter)
        name = f"{handler.namespace}:{handler.name}" if handler.namespace else handler.name
        signature = DOCUMENTED_STREAM_FUNCTIONS.get(name) or STREAM_FUNCTIONS.get(name)
        owner = f"{name}@{_key(handler.position)}"
        return {
            attribute.name: Symbol(SymbolKind.ATTRIBUTE, attribute.name, owner)
            for overload in (signature.overloads if signature is not None else ())
            for attribute in overload.adds
        }

    def _selector(
        self, selector: SelectClause, inputs: list[Input], target: str
    ) -> dict[str, Symbol]:
        """Resolve a selection; the output attributes by name."""
        existing = self._ask(_Resolver._attributes_of, target)
        outputs: dict[str, Symbol] = {}
        if not selector.attributes:
            for source in inputs:
                for name, symbol in source.attributes.items():
                    outputs[name] = Symbol(SymbolKind.ATTRIBUTE, name, target)
                    self._links.append((outputs[name], symbol))
                    self.symbols.link(outputs[name], symbol)
        for attribute in selector.attributes:
            expression = attribute.expression
            alias = attribute.alias
            if alias is None and isinstance(expression, Variable):
                output = Symbol(SymbolKind.ATTRIBUTE, expression.name, target)
                outputs[expression.name] = output
                self._variable(expression, inputs, output=output)
                continue
            self._expression(expression, inputs)
            if alias is not None:
                outputs[alias] = Symbol(SymbolKind.ATTRIBUTE, alias, target)
                at = self._after_as(self._index(attribute.position))
                self._note(outputs[alias], at, is_definition=not existing)
        for variable in selector.group_by:
            self._variable(variable, inputs)
        after = [Input((), target, outputs), *inputs]
        for part in (selector.having, selector.limit, selector.offset):
            if part is not None:
                self._expression(part, after)
        for order in selector.order_by:
            self._variable(order.attribute, after)
        return outputs

    # Expressions

    def _expression(
        self, root: Expression, inputs: list[Input], *, prefixed: Input | None = None
    ) -> None:
        """``prefixed``: a table that needs its prefix."""
        pending: list[tuple[Expression, Input | None]] = [(root, prefixed)]
        while pending:
            part, table = pending.pop()
            match part:
                case Variable():
                    self._variable(part, inputs, table=table)
                case EventReference():
                    self._prefix(part.source, part.kind, self._index(part.position), inputs)
                case Unary(operand=Variable(source=None) as operand) if not any(
                    operand.name in one.attributes for one in inputs
                ):
                    # ``e1 is null``.
                    at = self._index(operand.position)
                    self._prefix(operand.name, operand.kind, at, inputs)
                case Unary():
                    pending.append((part.operand, table))
                case Binary():
                    pending += [(part.left, table), (part.right, table)]
                case Call():
                    self._call(part)
                    pending += [(one, table) for one in part.arguments]
                case InTable():
                    reference = StreamReference(part.table, position=part.table_position)
                    self._reference(reference)
                    pending.append((part.operand, self._input_of(reference)))
                case Literal():
                    pass

    def _call(self, call: Call) -> None:
        if call.namespace is not None:
            return
        symbol = self._ask(_Resolver._function, call.name)
        if isinstance(symbol, Symbol):
            self._note(symbol, self._index(call.position))

    def _variable(
        self,
        variable: Variable,
        inputs: Sequence[Input],
        *,
        table: Input | None = None,
        output: Symbol | None = None,
    ) -> None:
        at = self._index(variable.position)
        if at is None:
            return
        if variable.source is None:
            symbol = next(
                (
                    one.attributes[variable.name]
                    for one in inputs
                    if variable.name in one.attributes
                ),
                None,
            )
        else:
            scope = [table, *inputs] if table is not None else inputs
            source = self._prefix(variable.source, variable.kind, at, scope)
            symbol = source.attributes.get(variable.name) if source is not None else None
            at = self._name_after_dot(at)
        if symbol is not None:
            self._note(symbol, at, output=output)

    def _prefix(
        self, name: str, kind: StreamKind, at: int | None, inputs: Sequence[Input]
    ) -> Input | None:
        """Note the prefix of an attribute; the input that it means."""
        source = next((one for one in inputs if f"{kind}{name}" in one.names), None)
        if source is not None and at is not None:
            at += kind is not StreamKind.PLAIN
            is_alias = source.alias is not None and source.alias.name == name
            symbol = source.alias if is_alias else self._named(name, kind)
            assert symbol is not None, "an input without an alias has a name"
            self._note(symbol, at)
        return source

    # Names and places

    def _id(self, reference: StreamReference) -> str:
        if reference.kind is StreamKind.INNER:
            return f"{self._partition}{reference}"
        return reference.name

    def _named(self, name: str, kind: StreamKind) -> Symbol:
        owner = f"{self._partition}#" if kind is StreamKind.INNER else ""
        return Symbol(SymbolKind.NAMED, name, owner)

    def _reference(self, reference: StreamReference, *, inserts: bool = False) -> None:
        at = self._index(reference.position)
        if at is not None:
            at += reference.kind is not StreamKind.PLAIN
            id_ = self._id(reference)
            is_first = inserts and not self._ask(_Resolver._is_defined, id_)
            symbol = self._named(reference.name, reference.kind)
            self._note(symbol, at, is_definition=is_first)

    def _input_of(self, reference: StreamReference) -> Input:
        id_ = self._id(reference)
        attributes = cast("dict[str, Symbol] | None", self._ask(_Resolver._attributes_of, id_))
        if attributes is None:
            names = cast("tuple[str, ...]", self._ask(_Resolver._schema, str(reference)))
            attributes = {name: Symbol(SymbolKind.ATTRIBUTE, name, id_) for name in names}
        elif reference.kind is StreamKind.FAULT:
            attributes = {**attributes, "_error": Symbol(SymbolKind.ATTRIBUTE, "_error", id_)}
        return Input((str(reference),), id_, attributes)

    def _index(self, position: Position) -> int | None:
        return self._token_index((position.line, position.column))

    def _note(
        self,
        symbol: Symbol,
        at: int | None,
        *,
        is_definition: bool = False,
        output: Symbol | None = None,
    ) -> None:
        if at is None:
            return
        place = self._cursor.place(self._cursor.tokens[at])
        self.symbols.occurrences.append(Occurrence(symbol, place, is_definition, output))

    def _after_as(self, at: int | None) -> int | None:
        """Index of the name after the next ``as`` outside of brackets."""
        depth = 0
        tokens = self._cursor.tokens
        while at is not None and tokens[at].kind is not TokenKind.END:
            text = tokens[at].text
            if text in ("(", "["):
                depth += 1
            elif text in (")", "]"):
                depth -= 1
            elif not depth and tokens[at].kind is TokenKind.NAME and text.lower() == "as":
                return at + 1
            at += 1
        return None

    def _name_after_dot(self, at: int) -> int:
        tokens = self._cursor.tokens
        while tokens[at].text != "." and tokens[at].kind is not TokenKind.END:
            at += 1
        return at + 1


def _key(position: Position) -> str:
    return f"{position.line}:{position.column}"
