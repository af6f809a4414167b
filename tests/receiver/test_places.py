"""Values of events in options with ``{{attribute}}``: hostile ones are played in each of them.

The options are those of the declarations.  An option may hold an attribute only if it declares its
place, and each place has a row here: templates, and what of a filled text has to stay.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from email import policy
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.connect import registry
from mesh.connect.pairs import pairs_of, text_of
from mesh.connect.places import OptionPlace
from mesh.mapping.filling import Misplaced, filler
from pyspark_nats.arrow import arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mesh.connect.spec import Option

HOSTILE: Final = (
    "", " ", ".", "..", "...", "a.b", "A.Ein.by.k.0.x", "a b", "a\nb", "a\r\nb: c", "a\0b", "\t",
    "../x", "a/../../x", "/etc/passwd", "a/b", "//h", ".mesh-0123", "%2e%2e%2f", "a%2Fb", "\\..\\x",
    "*", ">", "+", "#", "$JS.API.STREAM.DELETE.x", "$SYS", "_INBOX.x", "__consumer_offsets",
    "a','Authorization:Basic ZXZpbA==", "A','Nats-Rollup:all", "'", "''", "a:b", "a,b", "a;b",
    "x@example.org,y@example.org", "x@example.org, y@example.org", "a@b", "x@y>, <z@w",
    '"', '"a" <x@y>', "a<b>", "team:a@b,c@d;", "?a=b", "&a=b", "a=b&c=d", "#x", "@evil:80/",
    "evil.example/", "u:p@evil", "\\evil", "http://evil/", "ä", "\N{FULLWIDTH SOLIDUS}", "{{n}}",
    "null", "true", "1", "-1", "x" * 300, "Host", "content-length", "NATS-Rollup", "Cookie",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A place: templates, the part of a filled text that no value changes, and good values."""

    shape: Callable[[str], Any]
    good: tuple[str, ...]
    #: Templates with ``{{k}}``.
    parts: tuple[str, ...]
    #: Values that are refused as the whole option.
    bad_as_whole: tuple[str, ...] = ()
    #: What stays of a value in the filled text, in the first template.
    value: Callable[[str], str] | None = None
    bad: tuple[str, ...] = field(default=())


def of_url(text: str) -> Any:
    found = urlsplit(text)
    segments = [unquote(one) in ("", ".", "..") for one in found.path.split("/")]
    names = [name for name, _ in parse_qsl(found.query, keep_blank_values=True)]
    return found.scheme, found.netloc, segments, names, found.fragment != ""


def of_addresses(text: str) -> Any:
    header: Any = policy.default.header_factory("To", text)
    return len(header.addresses), [g.display_name for g in header.groups if g.display_name]


def of_path(text: str) -> Any:
    return posixpath.dirname(text) == posixpath.dirname(posixpath.normpath(text)), text.count("/")


ROWS: Final[dict[OptionPlace, Row]] = {
    OptionPlace.TEXT: Row(lambda _: None, HOSTILE, ("a{{k}}",)),
    OptionPlace.LINE: Row(
        lambda text: len(text.splitlines()), ("a b", "ä, \"b\" <c>:;'"), ("a{{k}}b",),
        ("a\nb", "a\r\nb: c", "a\0b"),
    ),
    OptionPlace.METHOD: Row(str.isalpha, ("GET", "put"), ("{{k}}X",), ("a b", "G\r\n", "GET /x")),
    OptionPlace.NAME: Row(
        lambda text: (text.isascii() and text.isprintable(), set(text) & set(" ,/"), text[0]),
        ("a-1.b_c:d",), ("a{{k}}", "aa{{k}}-x"), ("a b", "__consumer_offsets", "a/b", "a,b", "ä"),
    ),
    OptionPlace.SUBJECT: Row(
        lambda text: (text.count("."), set(text) & set("*> \n\r\t\0"), "" in text.split(".")),
        ("a", "ä", "a-b", "a/b"), ("mesh.T{{k}}.Ein", "out.{{k}}", "a.{{k}}.c"),
        ("a.*", "a.>", "$JS.API.STREAM.DELETE.x", "_INBOX.x", "a b"),
        bad=("a.b", "*", ">", "A.Ein.by.k.0.x", "a b"),
    ),
    OptionPlace.ROUTING_KEY: Row(
        lambda text: (text.count("."), "#" in text or "*" in text, "" in text.split(".")),
        ("a", "a b"), ("n{{k}}.x", "n.{{k}}", "n.{{k}}.x"), ("*", "a.#"),
        bad=("a.b", "#", "*"),
    ),
    OptionPlace.TOPIC: Row(
        lambda text: (text.count("/"), "#" in text or "+" in text, "" in text.split("/")),
        ("a", "a.b", "$a"), ("n{{k}}/x", "n/{{k}}", "n/{{k}}/x"), ("+", "a/#", "$SYS/x"),
        bad=("a/b", "#", "+"),
    ),
    OptionPlace.PATH: Row(
        of_path, ("a", "a b", ".a", "a.b", "ä,;:'\""),
        ("/out/{{k}}/x.csv", "/out/{{k}}", "/out/a-{{k}}.csv", "t/{{k}}/"),
        ("../x", "a/../../x", "..", "a\0b"), bad=("..", "../x", "a/b", "/etc/passwd"),
    ),
    OptionPlace.PATHS: Row(
        lambda text: (text.count(","), of_path(text)), ("a", "a b"),
        ("/out/{{k}}", "/a,/out/{{k}}/x"), ("/a,/b", "a/../../x"), bad=("..", "../x", "a,b"),
    ),
    OptionPlace.ADDRESSES: Row(
        of_addresses, ("a", "a.b+c", "ä"), ("{{k}}@example.org", "a@x, b{{k}}@example.org"),
        ("x@y,z@w", "x@y, z@w", "team:a@b,c@d;", "x@y>, <z@w"),
        bad=("x@example.org,y", "a@b", "a;b", "a\nb"),
    ),
    OptionPlace.HEADERS: Row(
        lambda text: [name for name, _ in pairs_of(text)],
        ("ann", "a, b", "it's", "a','Authorization:Basic ZXZpbA==", "a:b"),
        ("'X-User:{{k}}'", "'A:b','X:{{k}}','C:d'", "X:{{k}},Y:1", "'Authorization:Bearer {{k}}'"),
        ("'A:b\r\nC:d'", "'Nats-Rollup:all'", "a:b,authorization:c", "'Host:x'", "'Cookie:x'"),
        value=lambda text: pairs_of(text)[0][1], bad=("a\nb", "a\r\nb: c", "a\0b"),
    ),
    OptionPlace.URL: Row(
        of_url, ("a", "a/b", "a b", "?a=b", "&x=y", "ä", "#x", "a%2Fb"),
        ("http://h/a/{{k}}/x?q=1", "http://h/{{k}}", "http://h/x?q={{k}}&r=1", "http://h/x?q={{k}}",
         "http://h/x-{{k}}"),
        value=lambda text: unquote(urlsplit(text).path.split("/")[2]), bad=("", "..", "."),
    ),
}  # fmt: skip


def filled(place: OptionPlace, template: str, *values: str) -> list[str]:
    fill = filler("o", place, template)
    assert fill is not None
    columns = {"k": pa.array(values, pa.string()), "n": pa.array([1] * len(values))}
    return fill(arrow.record_batch(columns))


def options() -> Iterator[tuple[str, Option]]:
    for spec in registry.builtin_specs():
        for option in spec.options:
            if option.place is not None:
                yield f"{spec.role} {spec.name}: {option.name}", option


def test_an_option_with_attributes_declares_its_place_and_each_place_has_a_row() -> None:
    found = dict(options())
    assert len(found) > 40
    assert set(ROWS) == set(OptionPlace)
    assert {option.place for option in found.values()} == set(OptionPlace)
    # Options of free text: a new one is looked at by a person.
    free = {name.partition(": ")[2] for name, o in found.items() if o.place is OptionPlace.TEXT
            and not o.choices and o.kind.name == "TEXT"}  # fmt: skip
    assert free == {"key", "partition.no", "topic"}
    topics = {
        name for name, o in found.items() if o.place is OptionPlace.TEXT and o.name == "topic"
    }
    assert topics == {"sink inMemory: topic"}


@pytest.mark.parametrize("place", OptionPlace, ids=lambda place: place.name)
def test_no_value_changes_the_parts_of_an_option(place: OptionPlace) -> None:
    row = ROWS[place]
    for template in row.parts:
        (kept,) = filled(place, template, "xyz")
        for value, text in zip(HOSTILE, filled(place, template, *HOSTILE), strict=True):
            if type(text) is not Misplaced:
                assert row.shape(text) == row.shape(kept), (template, value, text)
        good = filled(place, template, *row.good)
        assert [t for t in good if type(t) is Misplaced] == [], template
    if row.value is not None:
        assert [row.value(text) for text in filled(place, row.parts[0], *row.good)] == list(
            row.good
        )


@pytest.mark.parametrize("place", OptionPlace, ids=lambda place: place.name)
def test_a_refusal_names_the_attribute_and_its_place(place: OptionPlace) -> None:
    row = ROWS[place]
    for template, values in ((row.parts[0], row.bad), ("{{k}}", row.bad_as_whole)):
        for value, text in zip(values, filled(place, template, *values), strict=True):
            assert isinstance(text, Misplaced), (template, value, text)
            assert text == ""
            assert 'option "o": ' in text.reason
            assert 'attribute "k"' in text.reason
            assert place.value.words in text.reason


@given(st.text(max_size=12), st.sampled_from([p for p in OptionPlace if p is not OptionPlace.TEXT]))
def test_no_text_at_all_changes_them(value: str, place: OptionPlace) -> None:
    row = ROWS[place]
    for template in row.parts:
        text, kept = filled(place, template, value, "xyz")
        if type(text) is not Misplaced:
            assert row.shape(text) == row.shape(kept)


def test_a_host_is_a_host_and_an_event_may_give_the_whole_url() -> None:
    hosts = ("h", "h:80", "[::1]:80", "evil/x", "a@b", "u:p@h", "h?x", "h#x", "h\\x", "", "h x")
    found = filled(OptionPlace.URL, "http://{{k}}/x", *hosts)
    assert [type(text) is str for text in found] == [*[True] * 3, *[False] * 8]
    assert filled(OptionPlace.URL, "{{k}}", "http://h/../a?b=c&d=e") == ["http://h/../a?b=c&d=e"]
    assert filled(OptionPlace.URL, "{{k}}/b?c={{n}}", "http://h/a") == ["http://h/a/b?c=1"]
    assert filled(OptionPlace.URL, "{{k}}://h/", "https", "http://evil/?") == ["https://h/", ""]


def test_an_event_chooses_the_name_of_a_header_but_none_that_steers() -> None:
    names = ("X-A", "Authorization", "nats-rollup", "Host", "a b", "", "a:b", "a'")
    found = filled(OptionPlace.HEADERS, "'{{k}}:{{n}}'", *names)
    assert found == ["'X-A:1'", *[""] * 7]
    # Neither with a part of it; one that the app itself names is the app's.
    assert filled(OptionPlace.HEADERS, "'Auth{{k}}:x'", "orization", "or") == ["", "'Author:x'"]
    assert filled(OptionPlace.HEADERS, "'Authorization:{{k}}'", "x") == ["'Authorization:x'"]
    assert filled(OptionPlace.HEADERS, "{{k}}", "'A:b','C:d'") == ["'A:b','C:d'"]


def test_one_mailbox_is_one_address_with_its_name() -> None:
    good = ('"Lee, Ann" <ann@example.org>', "ann@example.org", "Ann <a@b.org>")
    assert filled(OptionPlace.ADDRESSES, "{{k}}", *good) == list(good)
    (text,) = filled(OptionPlace.ADDRESSES, "Ann <{{k}}>, b@c", "a@b.org")
    assert text == "Ann <a@b.org>, b@c"
    assert filled(OptionPlace.ADDRESSES, "Ann <{{k}}>", "x@y>, <z@w") == [""]


@given(st.lists(st.tuples(st.text("aB-'", min_size=1), st.text("x':, y"))))
def test_pairs_are_read_as_they_were_written(pairs: list[tuple[str, str]]) -> None:
    assert pairs_of(text_of(pairs)) == [(name, value.strip()) for name, value in pairs]
