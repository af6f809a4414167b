"""Numbers of partitions: groups that keyed channels join agree on one."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from mesh.plan.build import plan


def app(*groups: tuple[str, str, str]) -> str:
    """An app with groups as (options of ``@dist``, stream that it reads by ``k``, output)."""
    queries = [
        f"@dist(execGroup='g{number}', {options}) "
        f"from {source} select k, count() as n group by k insert into {to};"
        for number, (options, source, to) in enumerate(groups, 1)
    ]
    streams = {source for _, source, _ in groups} - {to for *_, to in groups}
    defined = " ".join(f"define stream {one} (k string);" for one in sorted(streams))
    return f"@App:name('A') {defined} {' '.join(queries)}"


def counts(text: str, default: int = 16) -> dict[str, int]:
    """The numbers of partitions of the keyed channels, by stream."""
    channels = plan(text, partitions=default).spec.channels
    return {one.stream.name: one.partitions for one in channels if one.is_keyed}


def test_without_a_word_it_is_the_default() -> None:
    text = app(("parallel='2'", "S", "T"), ("parallel='1'", "U", "V"))
    assert counts(text) == {"S": 16}
    assert counts(text, default=5) == {"S": 5}


def test_one_of_several_readers_says_it_for_all() -> None:
    readers = ("parallel='2', partitions='8'", "S", "T"), ("parallel='3'", "S", "V")
    assert counts(app(*readers)) == counts(app(*reversed(readers))) == {"S": 8}


def test_groups_that_no_channel_joins_have_numbers_of_their_own() -> None:
    text = app(
        ("parallel='2', partitions='8'", "S", "T"),
        ("parallel='2', partitions='4'", "U", "V"),
        ("parallel='2'", "W", "X"),
    )
    assert counts(text) == {"S": 8, "U": 4, "W": 16}


def test_a_join_joins_the_readers_of_both_of_its_streams() -> None:
    streams = "define stream S (k string); define stream U (k string);"
    joined = (
        "@dist(execGroup='j', parallel='2') partition with (k of S, k of U) begin "
        "from S#window.length(1) join U#window.length(1) select S.k as k insert into T; end;"
    )
    beside = (
        "@dist(execGroup='g', parallel='2', partitions='8') "
        "from S select k, count() as n group by k insert into V;"
        "@dist(execGroup='h', parallel='2') "
        "from U select k, count() as n group by k insert into W;"
    )
    assert counts(f"@App:name('A') {streams} {beside} {joined}") == {"S": 8, "U": 8}
    assert counts(f"@App:name('A') {streams} {beside}") == {"S": 8, "U": 16}


def test_two_numbers_for_one_channel_are_refused() -> None:
    text = app(("partitions='8'", "S", "T"), ("parallel='2', partitions='4'", "S", "V"))
    with pytest.raises(MeshError) as refusal:
        counts(text)
    assert refusal.value.code == "MESH-P222"
    assert refusal.value.detail == "They are 8 and 4."


@pytest.mark.parametrize(
    ("options", "default", "is_refused"),
    [
        ("parallel='4'", 4, False),
        ("parallel='5'", 4, True),
        ("parallel='5', partitions='5'", 4, False),
        ("parallel='4', partitions='3'", 16, True),
    ],
)
def test_no_instance_is_without_a_partition(options: str, default: int, is_refused: bool) -> None:
    text = app((options, "S", "T"))
    if not is_refused:
        assert counts(text, default)["S"] >= 3
        return
    with pytest.raises(MeshError) as refusal:
        counts(text, default)
    assert refusal.value.code == "MESH-P213"
