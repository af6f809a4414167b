"""Annotations as they are written: where each begins and ends."""

from __future__ import annotations

from mesh.language.written import annotations_of


def test_an_annotation_without_brackets_ends_with_its_name() -> None:
    text = "@App:enforceOrder @PartitionById\n@purge(enable='false')\ndefine aggregation A"
    found = [(one.name, text[one.start : one.stop]) for one in annotations_of(text)]
    assert found == [
        ("App:enforceOrder", "@App:enforceOrder"),
        ("PartitionById", "@PartitionById"),
        ("purge", "@purge(enable='false')"),
    ]


def test_keys_have_symbols_between_their_names() -> None:
    (one,) = annotations_of("@source(type = 'x', topic.list='t', oauth-scope='s', `key`='k', 'v')")
    assert [(element.key, element.text) for element in one.elements] == [
        ("type", "x"), ("topic.list", "t"), ("oauth-scope", "s"), ("key", "k"), (None, "v"),
    ]  # fmt: skip
