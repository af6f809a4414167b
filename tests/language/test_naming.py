"""Names of apps whose text has none, and of others than subjects can have."""

from __future__ import annotations

import pickle

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mesh.errors import MeshError, MeshErrors, Position
from mesh.language.naming import NamedText, has_name, named
from mesh.language.parser import parse_app
from mesh.language.substitution import substitute
from mesh.model import names
from mesh.plan.build import plan

TEXT = "define stream S (a int); from S select a insert into T;"


def test_a_text_without_a_name_gets_that_of_its_file() -> None:
    spec = plan(named(TEXT, "orders")).spec
    assert (spec.name, spec.text) == ("orders", f"@App:name('orders')\n{TEXT}")
    assert type(spec.text) is str


def test_without_a_file_the_name_is_drawn_from_the_text() -> None:
    one, other = plan(TEXT).spec.name, plan(TEXT.replace("T", "U")).spec.name
    assert one != other
    assert one == plan(named(TEXT)).spec.name
    assert names.is_app_name(one)


@pytest.mark.parametrize(
    "head",
    [
        "@App:name('A')",
        "@app:NAME('A')",
        "-- @App:other\n/* x */ @ App : name ( 'A' )",
        "@App:description(\"it's (1)\") @App:statistics @App:name('A')",
        "@App:a(b='x', 'y') @App:name('A')",
    ],
)
def test_a_name_that_is_there_stays(head: str) -> None:
    text = f"{head} {TEXT}"
    assert named(text, "other") is text
    assert plan(text).spec.name == "A"


@pytest.mark.parametrize("head", ["", "-- @App:name('A')\n", "@App:description('@App:name(1)')"])
def test_what_is_no_name_is_not_taken_for_one(head: str) -> None:
    assert not has_name(f"{head} {TEXT}")
    assert plan(named(f"{head} {TEXT}", "x")).spec.name == "x"


def test_errors_are_placed_in_the_text_as_given() -> None:
    given_text = "define stream S (a ${A});\nfrom S select b insert into T;"
    text = named(substitute(given_text, {"A": "int"}), "orders")
    for one in (text, pickle.loads(pickle.dumps(text))):
        with pytest.raises(MeshError) as raised:
            plan(one)
        assert raised.value.position == Position(2, 15)
    with pytest.raises(MeshErrors) as refused:
        parse_app(named("define sream S (a int);"))
    assert refused.value.position == Position(1, 8, 5)
    assert isinstance(text, NamedText)
    assert (text.original, text.name) == (given_text.replace("${A}", "int"), "orders")


def test_a_name_that_no_subject_can_have_is_escaped() -> None:
    spec = plan(f"@App:name('APIM_EVENT & RECEIVER_3.1.0') {TEXT}").spec
    token = "APIM_EVENT--20--26--20RECEIVER_3--2E1--2E0"
    assert spec.name == token
    assert {c.subject() for c in spec.channels} == {f"mesh.{token}.S", f"mesh.{token}.T"}
    assert {group.app for group in spec.groups} == {token}


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_an_escaped_name_is_legal_and_leads_back(name: str) -> None:
    token = names.app_token(name)
    assert set(token) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    assert names.app_token(token) == token
    if "-" not in name:
        assert names.app_of_token(token) == name


@pytest.mark.parametrize(
    "text",
    [
        "define table T (a int);",
        "define stream S (a int); define window W (a int) length(5);",
        "@source(type='http') @sink(type='log') define stream S (a int);",
        "define trigger T at every 5 sec;",
    ],
)
def test_an_app_without_a_query_is_planned(text: str) -> None:
    assert plan(text).spec.name
