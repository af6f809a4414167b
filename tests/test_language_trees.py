"""Every tree prints to a text that parses to it again."""

from __future__ import annotations

import string

import hypothesis.strategies as st
from hypothesis import given

from mesh.errors import MeshError
from mesh.language.numbers import round_to_float
from mesh.language.parser import parse
from mesh.language.print_expressions import print_string
from mesh.language.printer import print_app
from mesh.language.syntax import (
    Annotation,
    App,
    AttributeDefinition,
    Binary,
    BinaryOperator,
    Call,
    EventElement,
    EventKind,
    EveryElement,
    Expression,
    Filter,
    Handler,
    InsertInto,
    Literal,
    NextElement,
    OutputAttribute,
    Query,
    Selector,
    StateElement,
    StateInput,
    StateKind,
    StreamDefinition,
    StreamInput,
    StreamReference,
    Unary,
    UnaryOperator,
    Variable,
    WindowHandler,
)
from mesh.language.tokens import KEYWORDS, tokenize
from mesh.model.types import AttributeType

_LETTERS = string.ascii_letters + "_"
plain_names = st.builds(
    str.__add__,
    st.sampled_from(_LETTERS),
    st.text(_LETTERS + string.digits, max_size=5),
)
names = st.one_of(
    plain_names,
    st.sampled_from(sorted(KEYWORDS)),
    st.text(st.characters(exclude_characters="`\r\n", codec="utf-8"), min_size=1, max_size=4),
)
# A substitution is refused wherever it stands.
texts = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda text: "${" not in text)
keys = st.one_of(st.none(), plain_names, st.sampled_from(["a.b", "a-b:c", "or"]), texts)

times = st.builds(
    Literal, st.integers(0, 10**13), st.just(AttributeType.LONG), is_time=st.just(True)
)
literals = st.one_of(
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
plain_variables = st.builds(Variable, names)
variables = st.one_of(
    plain_variables,
    st.builds(Variable, names, names, st.one_of(st.none(), st.integers(-9, 9))),
)


def _larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    calls = st.builds(
        Call, names, st.lists(inner, max_size=3).map(tuple), st.one_of(st.none(), names)
    )
    return st.one_of(
        calls,
        st.builds(Unary, st.just(UnaryOperator.NOT), inner),
        st.builds(Unary, st.just(UnaryOperator.NEGATE), inner),
        st.builds(Unary, st.just(UnaryOperator.IS_NULL), st.one_of(variables, calls)),
        st.builds(Binary, st.sampled_from(BinaryOperator), inner, inner),
    )


expressions = st.recursive(st.one_of(literals, variables), _larger, max_leaves=8)

elements = st.lists(st.tuples(keys, texts), max_size=3).map(tuple)
leaf_annotations = st.builds(Annotation, names, elements)
annotation_lists = st.lists(
    st.builds(Annotation, names, elements, st.lists(leaf_annotations, max_size=2).map(tuple)),
    max_size=2,
).map(tuple)
app_annotations = st.lists(
    st.builds(Annotation, names.map(lambda name: f"App:{name}"), elements), max_size=2
).map(tuple)

streams = st.builds(
    StreamDefinition,
    names,
    st.lists(
        st.builds(AttributeDefinition, names, st.sampled_from(AttributeType)),
        min_size=1,
        max_size=4,
    ).map(tuple),
    annotation_lists,
)
filters = st.lists(st.builds(Filter, expressions), max_size=2).map(tuple)
windows = st.builds(WindowHandler, plain_names, st.lists(expressions, max_size=2).map(tuple))


def _handlers(
    before: tuple[Filter, ...], window: WindowHandler | None, after: tuple[Filter, ...]
) -> tuple[Handler, ...]:
    return (*before, window, *after) if window is not None else before


references = st.builds(StreamReference, names)
stream_inputs = st.builds(
    StreamInput, references, st.builds(_handlers, filters, st.one_of(st.none(), windows), filters)
)
steps = st.builds(EventElement, references, st.one_of(st.none(), names), filters)


@st.composite
def patterns(draw: st.DrawFn) -> StateInput:
    chosen = draw(st.lists(steps, min_size=1, max_size=4))
    start = draw(st.integers(0, len(chosen) - 1))
    stop = draw(st.integers(start + 1, len(chosen)))
    elements: list[StateElement] = list(chosen)
    if draw(st.booleans()):
        repeated = chosen[start:stop]
        inner = NextElement(tuple(repeated)) if len(repeated) > 1 else repeated[0]
        elements[start:stop] = [EveryElement(inner)]
    element = NextElement(tuple(elements)) if len(elements) > 1 else elements[0]
    return StateInput(StateKind.PATTERN, element, draw(st.one_of(st.none(), times)))


output_attributes = st.one_of(
    st.builds(OutputAttribute, variables),
    st.builds(OutputAttribute, expressions, names),
)
selectors = st.builds(
    Selector,
    st.lists(output_attributes, max_size=3).map(tuple),
    st.lists(variables, max_size=2).map(tuple),
    st.one_of(st.none(), expressions),
)
queries = st.builds(
    Query,
    st.one_of(stream_inputs, patterns()),
    selectors,
    st.builds(InsertInto, references, st.sampled_from(EventKind)),
    annotation_lists,
)


def _elements(
    first: list[StreamDefinition], then: list[Query]
) -> tuple[StreamDefinition | Query, ...]:
    return (*first, *then)


apps = st.builds(
    App,
    app_annotations,
    st.builds(_elements, st.lists(streams, min_size=1, max_size=2), st.lists(queries, max_size=2)),
)


@given(apps)
def test_a_printed_tree_parses_to_itself(app: App) -> None:
    assert parse(print_app(app)) == app


@given(apps)
def test_printing_is_settled_after_once(app: App) -> None:
    text = print_app(app)
    assert print_app(parse(text)) == text


@given(texts)
def test_a_printed_string_is_one_token_with_that_content(text: str) -> None:
    token, _end = tokenize(print_string(text))
    assert token.value == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_rounding_to_float_keeps_floats(value: float) -> None:
    assert round_to_float(value) == value


_SYMBOLS = '-> ... <= == ( ) [ ] , ; : . = < * + ? - @ # ! { \' " ` """ -- /* 5 1L'
_words = st.one_of(
    st.sampled_from(sorted(KEYWORDS)),
    st.sampled_from(_SYMBOLS.split()),
    st.sampled_from(["S", "e1", "'x'", "\n", "define stream S (a int);", "from S select a"]),
)


@given(st.lists(_words, max_size=25).map(" ".join))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    try:
        app = parse(text)
    except MeshError as error:
        refused = error
    else:
        assert parse(print_app(app)) == app
        return
    assert refused.position is not None
    assert 1 <= refused.position.line <= len(text.splitlines()) + 1
    assert refused.code in refused.render(text)
