"""The support table: its examples cover the language, and it agrees with the code."""

from __future__ import annotations

import dataclasses
import inspect

from mesh.functions.catalogue import (
    AGGREGATORS,
    DOCUMENTED_FUNCTIONS,
    DOCUMENTED_STREAM_FUNCTIONS,
    DOCUMENTED_WINDOWS,
    SCALARS,
    STREAM_FUNCTIONS,
    WINDOWS,
    Signature,
)
from mesh.language import syntax
from mesh.language.parser import parse_app, parse_on_demand_query
from mesh.language.substitution import substitute
from tests.support.paths import ROOT
from tests.support.together import together
from tools.docgen.language import END, language_document
from tools.docgen.support import Element, Support, elements, try_app, try_call, try_element

ELEMENTS = [element for group in elements().values() for element in group]
OF_THE_ENGINE = [s for t in (SCALARS, AGGREGATORS, WINDOWS, STREAM_FUNCTIONS) for s in t.values()]
OF_EXTENSIONS = [
    signature
    for table in (DOCUMENTED_FUNCTIONS, DOCUMENTED_WINDOWS, DOCUMENTED_STREAM_FUNCTIONS)
    for signature in table.values()
]


@together("element", ELEMENTS, ids=lambda element: element.name)
def test_every_element_is_parsed(element: Element) -> None:
    assert try_element(element).parsed, element


@together("signature", OF_THE_ENGINE, ids=lambda s: f"{s.kind} {s.name}")
def test_every_call_is_parsed_and_runs_if_the_catalogue_says_so(signature: Signature) -> None:
    found = try_call(signature)
    assert found.parsed
    assert found.runs == signature.runs


@together("signature", OF_EXTENSIONS, ids=lambda s: f"{s.kind} {s.name}")
def test_every_call_of_an_extension_is_parsed(signature: Signature) -> None:
    assert try_call(signature).parsed


def _nodes(value: object) -> set[type]:
    """The classes of a tree's nodes."""
    if isinstance(value, tuple):
        return set().union(*map(_nodes, value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return set()
    fields = (getattr(value, field.name) for field in dataclasses.fields(value))
    return {type(value)}.union(*map(_nodes, fields))


def test_the_examples_have_every_kind_of_node() -> None:
    found: set[type] = set()
    for element in ELEMENTS:
        found |= _nodes(parse_app(substitute(element.app, {})))
        if element.query is not None:
            found |= _nodes(parse_on_demand_query(element.query))
    nodes = {
        value
        for value in vars(syntax).values()
        if inspect.isclass(value) and dataclasses.is_dataclass(value)
    }
    assert nodes - found == set()


def test_stages_are_told_apart() -> None:
    defined = "define stream S (a int);"
    assert try_app(f"{defined} from S selct a insert into T;") == Support()
    assert try_app(f"{defined} from S select b insert into T;") == Support(parsed=True)
    runs = try_app(f"{defined} from S select a insert into T;")
    assert runs == Support(parsed=True, typed=True, runs=True)
    assert try_app(defined, "from S selct a") == Support()


def test_the_prose_around_the_table_stays() -> None:
    text = (ROOT / "docs" / "siddhiql.md").read_text(encoding="utf-8")
    made = language_document(ROOT)
    assert made.startswith(text[: text.index("<!--")])
    assert made.endswith(text[text.index(END) :])
