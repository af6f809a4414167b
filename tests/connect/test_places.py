"""Values of events in options with ``{{attribute}}``: hostile ones are played in each of them.

The options are those of the declarations.  An option may hold an attribute only if it declares its
place, and each place has a row here: templates, and what of a filled text has to stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from mesh.connect import registry
from mesh.connect.places import OptionPlace, pairs_of, text_of
from tests.support.placed_values import ROWS, filled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.connect.spec import Option


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
