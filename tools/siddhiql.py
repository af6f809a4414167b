"""Hypothesis strategies for the whole of SiddhiQL: trees that a text can have.

``apps`` are valid to the parser, not to the binder: names and types are drawn at random.

The file is longer than 400 lines because the strategies refer to one another as the rules of the
grammar do.
"""

from __future__ import annotations

import itertools
import string
from typing import TypeVar

import hypothesis.strategies as st

from mesh.language.syntax import (
    AbsentElement,
    AggregationDefinition,
    Annotation,
    AnonymousInput,
    App,
    AttributeDefinition,
    Binary,
    BinaryOperator,
    Call,
    CountElement,
    Definition,
    DeleteFrom,
    Direction,
    Durations,
    Element,
    EventElement,
    EventKind,
    EventReference,
    EveryElement,
    Expression,
    Filter,
    FunctionDefinition,
    Handler,
    InsertInto,
    InTable,
    JoinInput,
    JoinKind,
    JoinSide,
    Literal,
    LogicalElement,
    LogicalOperator,
    NextElement,
    OnDemandQuery,
    OrderBy,
    OutputAttribute,
    OutputRate,
    Partition,
    PartitionRange,
    Query,
    QueryInput,
    RangePartition,
    RateKind,
    ReturnEvents,
    SelectClause,
    SetAssignment,
    StateElement,
    StateInput,
    StateKind,
    StoreInput,
    StreamDefinition,
    StreamFunction,
    StreamInput,
    StreamKind,
    StreamReference,
    TableDefinition,
    TimeUnit,
    TriggerDefinition,
    Unary,
    UnaryOperator,
    UpdateTable,
    ValuePartition,
    Variable,
    WindowDefinition,
    WindowHandler,
    WithinRange,
)
from mesh.language.tokens import KEYWORDS
from mesh.model.types import AttributeType

_T = TypeVar("_T")


def _maybe(strategy: st.SearchStrategy[_T]) -> st.SearchStrategy[_T | None]:
    return st.one_of(st.none(), strategy)


def _some(
    strategy: st.SearchStrategy[_T], least: int = 0, most: int = 2
) -> st.SearchStrategy[tuple[_T, ...]]:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


def _shown_short(strategy: st.SearchStrategy[_T]) -> st.SearchStrategy[_T]:
    """``strategy`` with a short repr: those of composed strategies grow too long."""

    @st.composite
    def drawn(draw: st.DrawFn) -> _T:
        return draw(strategy)

    return drawn()


# Names and constants

_LETTERS = string.ascii_letters + "_"
plain_names = st.builds(
    str.__add__, st.sampled_from(_LETTERS), st.text(_LETTERS + string.digits, max_size=5)
)
#: Keywords among them, and names that need backquotes.
names = _shown_short(
    st.one_of(
        plain_names,
        st.sampled_from(sorted(KEYWORDS)),
        st.text(st.characters(exclude_characters="`\r\n", codec="utf-8"), min_size=1, max_size=4),
    )
)


def _can_be_quoted(text: str) -> bool:
    """Whether some kind of quotes holds ``text``."""
    is_plain = '"' not in text and min(text, default=" ") >= " "
    return "${" not in text and (is_plain or not (text.endswith('"') or '"""' in text))


texts = _shown_short(st.text(st.characters(codec="utf-8"), max_size=8).filter(_can_be_quoted))
times = st.builds(
    Literal, st.integers(0, 10**13), st.just(AttributeType.LONG), is_time=st.just(True)
)
literals = _shown_short(
    st.one_of(
        st.builds(Literal, texts, st.just(AttributeType.STRING)),
        st.builds(Literal, st.integers(-(2**31), 2**31 - 1), st.just(AttributeType.INT)),
        st.builds(Literal, st.integers(-(2**63), 2**63 - 1), st.just(AttributeType.LONG)),
        st.builds(
            Literal,
            st.floats(width=32, allow_nan=False, allow_infinity=False),
            st.just(AttributeType.FLOAT),
        ),
        st.builds(
            Literal, st.floats(allow_nan=False, allow_infinity=False), st.just(AttributeType.DOUBLE)
        ),
        st.builds(Literal, st.booleans(), st.just(AttributeType.BOOL)),
        times,
    )
)

# Expressions

stream_kinds = st.sampled_from(StreamKind)
_indexes = _maybe(st.integers(-9, 9))


@st.composite
def _variables(draw: st.DrawFn) -> Variable:
    name = draw(names)
    if draw(st.booleans()):
        return Variable(name)
    function = draw(_maybe(names))
    function_index = draw(_indexes) if function is not None else None
    return Variable(name, draw(names), draw(_indexes), draw(stream_kinds), function, function_index)


variables = _variables()
event_references = _shown_short(
    st.one_of(
        st.builds(EventReference, names, st.integers(-9, 9), stream_kinds),
        st.builds(
            EventReference, names, _indexes, st.sampled_from([StreamKind.INNER, StreamKind.FAULT])
        ),
    )
)


def _larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    calls = st.one_of(
        st.builds(Call, names, _some(inner, most=3), _maybe(names)),
        st.builds(Call, names, st.just(()), _maybe(names), st.just(True)),
    )
    tested = st.one_of(variables, calls, event_references)
    return st.one_of(
        calls,
        st.builds(Unary, st.just(UnaryOperator.NOT), inner),
        st.builds(Unary, st.just(UnaryOperator.NEGATE), inner),
        st.builds(Unary, st.just(UnaryOperator.IS_NULL), tested),
        st.builds(Binary, st.sampled_from(BinaryOperator), inner, inner),
        st.builds(InTable, inner, names),
    )


expressions = _shown_short(st.recursive(st.one_of(literals, variables), _larger, max_leaves=6))

# Annotations

_keys = st.one_of(
    st.none(), plain_names, st.sampled_from(["a.b", "a-b:c", "or", "set", "x.in"]), texts
)
_elements = _some(st.tuples(_keys, texts))
_leaf_annotations = st.builds(Annotation, names, _elements)
annotation_lists = _shown_short(
    _some(st.builds(Annotation, names, _elements, _some(_leaf_annotations)))
)
app_annotations = _some(st.builds(Annotation, names.map(lambda name: f"App:{name}"), _elements))

# Inputs

references = st.builds(StreamReference, names, stream_kinds)
plain_references = st.builds(StreamReference, names)
windows = _shown_short(
    st.one_of(
        st.builds(WindowHandler, names, _some(expressions), _maybe(names)),
        st.builds(WindowHandler, names, st.just(()), _maybe(names), st.just(True)),
    )
)
_steps: st.SearchStrategy[Handler] = st.one_of(
    st.builds(Filter, expressions),
    st.builds(StreamFunction, names, _some(expressions), _maybe(names)),
    st.builds(StreamFunction, names, st.just(()), _maybe(names), st.just(True)),
)
#: Handlers without a window.
steps = _shown_short(_some(_steps))


def _with_window(
    before: tuple[Handler, ...], window: WindowHandler | None, after: tuple[Handler, ...]
) -> tuple[Handler, ...]:
    return (*before, window, *after) if window is not None else before


stream_inputs = _shown_short(
    st.builds(StreamInput, references, st.builds(_with_window, steps, _maybe(windows), steps))
)
_join_sides = st.builds(
    StreamInput,
    references,
    st.builds(_with_window, steps, _maybe(windows), st.just(())),
    _maybe(names),
)
ranges = st.builds(WithinRange, expressions, _maybe(expressions))


@st.composite
def _joins(draw: st.DrawFn) -> JoinInput:
    has_range = draw(st.booleans())
    return JoinInput(
        draw(_join_sides),
        draw(_join_sides),
        draw(st.sampled_from(JoinKind)),
        draw(st.sampled_from(JoinSide)),
        draw(_maybe(expressions)),
        draw(ranges) if has_range else None,
        draw(expressions) if has_range else None,
    )


joins = _joins()

# Patterns and sequences

events = _shown_short(st.builds(EventElement, references, _maybe(names), steps))
_unnamed_events = st.builds(EventElement, references, st.none(), steps)
_counts = _shown_short(
    st.one_of(
        st.builds(CountElement, events, st.integers(0, 5), _maybe(st.integers(0, 9))),
        st.builds(CountElement, events, st.sampled_from([0, 1]), st.none()),
    )
)
_absent = st.builds(AbsentElement, _unnamed_events, times)
_absent_or_not = st.builds(AbsentElement, _unnamed_events, _maybe(times))
_logical = _shown_short(
    st.one_of(
        st.builds(LogicalElement, st.sampled_from(LogicalOperator), events, events),
        st.builds(LogicalElement, st.sampled_from(LogicalOperator), _absent, events),
        st.builds(LogicalElement, st.sampled_from(LogicalOperator), events, _absent),
        st.builds(LogicalElement, st.sampled_from(LogicalOperator), _absent, _absent),
        st.builds(LogicalElement, st.just(LogicalOperator.AND), _absent_or_not, events),
        st.builds(LogicalElement, st.just(LogicalOperator.AND), events, _absent_or_not),
    )
)
_units: st.SearchStrategy[StateElement] = _shown_short(
    st.one_of(events, _counts, _absent, _logical)
)


def _is_possible(elements: tuple[StateElement, ...]) -> bool:
    """Whether no absent event follows another."""
    bare = [e.element if isinstance(e, EveryElement) else e for e in elements]
    return not any(
        isinstance(a, AbsentElement) and isinstance(b, AbsentElement)
        for a, b in itertools.pairwise(bare)
    )


def _chain(elements: tuple[StateElement, ...]) -> StateElement:
    return elements[0] if len(elements) == 1 else NextElement(elements)


_repeated = _some(_units, 1, 3).filter(_is_possible).map(_chain).map(EveryElement)
patterns = _shown_short(
    st.builds(
        StateInput,
        st.just(StateKind.PATTERN),
        _some(st.one_of(_units, _repeated), 1, 4).filter(_is_possible).map(_chain),
        _maybe(times),
    )
)


def _sequence(first: StateElement, rest: tuple[StateElement, ...]) -> tuple[StateElement, ...]:
    return (first, *rest)


sequences = _shown_short(
    st.builds(
        StateInput,
        st.just(StateKind.SEQUENCE),
        st.builds(_sequence, st.one_of(_units, _units.map(EveryElement)), _some(_units, 1, 3))
        .filter(_is_possible)
        .map(NextElement),
        _maybe(times),
    )
)

# Selection, rate and output

output_attributes = _shown_short(
    st.one_of(st.builds(OutputAttribute, variables), st.builds(OutputAttribute, expressions, names))
)
selectors = _shown_short(
    st.builds(
        SelectClause,
        _some(output_attributes, most=3),
        _some(variables),
        _maybe(expressions),
        _some(st.builds(OrderBy, variables, st.sampled_from(Direction))),
        _maybe(expressions),
        _maybe(expressions),
    )
)
rates = _shown_short(
    st.one_of(
        st.builds(OutputRate, st.sampled_from(RateKind), times),
        st.builds(
            OutputRate,
            st.sampled_from([RateKind.ALL, RateKind.FIRST, RateKind.LAST]),
            st.builds(Literal, st.integers(0, 2**31 - 1), st.just(AttributeType.INT)),
        ),
    )
)
event_kinds = st.sampled_from(EventKind)
returns = st.builds(ReturnEvents, event_kinds)
assignments = _some(st.builds(SetAssignment, variables, expressions))
outputs = _shown_short(
    st.one_of(
        st.builds(InsertInto, references, event_kinds),
        st.builds(DeleteFrom, plain_references, expressions, event_kinds),
        st.builds(
            UpdateTable, plain_references, assignments, expressions, event_kinds, st.booleans()
        ),
        returns,
    )
)

# Queries

_plain_inputs: st.SearchStrategy[QueryInput] = st.one_of(stream_inputs, joins, patterns, sequences)
inputs: st.SearchStrategy[QueryInput] = _shown_short(
    st.recursive(
        _plain_inputs,
        lambda inner: st.builds(AnonymousInput, inner, selectors, _maybe(rates), returns),
        max_leaves=2,
    )
)
queries = _shown_short(
    st.builds(Query, inputs, selectors, outputs, annotation_lists, _maybe(rates))
)
partition_keys = _shown_short(
    st.one_of(
        st.builds(ValuePartition, expressions, plain_references),
        st.builds(
            RangePartition,
            _some(st.builds(PartitionRange, expressions, texts), 1, 3),
            plain_references,
        ),
    )
)
partitions = _shown_short(
    st.builds(Partition, _some(partition_keys, 1), _some(queries, 1), annotation_lists)
)

# Definitions

attributes = _some(st.builds(AttributeDefinition, names, st.sampled_from(AttributeType)), 1, 4)
_durations = st.sampled_from(
    [unit for unit in TimeUnit if unit not in (TimeUnit.WEEK, TimeUnit.MILLISECOND)]
)
durations = st.one_of(
    st.builds(Durations, _some(_durations, 1, 4)),
    st.builds(Durations, _some(_durations, 2, 2), st.just(True)),
)
_bodies = st.sampled_from(
    ["", " return 'a'; ", ' if (a) { return "}"; } // }\n ', "\n  { {} }\n", ' "{\n" / "}" ']
)
definitions: st.SearchStrategy[Definition] = _shown_short(
    st.one_of(
        st.builds(StreamDefinition, names, attributes, annotation_lists),
        st.builds(TableDefinition, names, attributes, annotation_lists),
        st.builds(
            WindowDefinition, names, attributes, windows, _maybe(event_kinds), annotation_lists
        ),
        st.builds(
            TriggerDefinition,
            names,
            st.one_of(times, st.builds(Literal, texts, st.just(AttributeType.STRING))),
        ),
        st.builds(
            FunctionDefinition,
            names,
            names,
            st.sampled_from(AttributeType),
            _bodies,
        ),
        st.builds(
            AggregationDefinition,
            names,
            st.builds(StreamInput, references, steps),
            st.builds(SelectClause, _some(output_attributes, most=3), _some(variables)),
            _maybe(variables),
            durations,
            annotation_lists,
        ),
    )
)


def _app(
    annotations: tuple[Annotation, ...],
    definitions: tuple[Definition, ...],
    rest: tuple[Query | Partition, ...],
) -> App:
    elements: tuple[Element, ...] = (*definitions, *rest)
    return App(annotations, elements)


#: Apps of a few statements.
apps = _shown_short(
    st.builds(_app, app_annotations, _some(definitions, 1), _some(st.one_of(queries, partitions)))
)

# On-demand queries


@st.composite
def _store_inputs(draw: st.DrawFn) -> StoreInput:
    has_range = draw(st.booleans())
    return StoreInput(
        draw(plain_references),
        draw(_maybe(names)),
        draw(_maybe(expressions)),
        draw(ranges) if has_range else None,
        draw(expressions) if has_range else None,
    )


on_demand_queries = _shown_short(
    st.one_of(
        st.builds(OnDemandQuery, _store_inputs(), selectors, st.just(ReturnEvents())),
        st.builds(
            OnDemandQuery,
            st.none(),
            selectors,
            st.one_of(
                st.builds(InsertInto, plain_references),
                st.builds(DeleteFrom, plain_references, expressions),
                st.builds(
                    UpdateTable,
                    plain_references,
                    assignments,
                    expressions,
                    inserts=st.booleans(),
                ),
            ),
        ),
    )
)
