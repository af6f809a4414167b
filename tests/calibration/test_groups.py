"""Random events that an app's text distinguishes."""

from __future__ import annotations

import pytest

from mesh.calibration.groups import Sampler, hints_of
from mesh.errors import MeshError
from mesh.language.parser import parse_app
from mesh.plan.bind import bind

TEXT = """define stream S (k string, kind string, room int, v double, hot bool, n long);
partition with (room of S) begin
from S[v > 40.0 and kind == 'door' and n < -5]#window.time(2 min) select k, avg(v) as mean
group by k having mean >= 90.0 insert into T; end;
"""


def sampler(keys: int = 3, given: tuple[str, ...] = (), seed: int = 1) -> Sampler:
    (schema,) = [one for one in bind(parse_app(TEXT)).streams if one.name == "S"]
    return Sampler(schema, hints_of(TEXT), keys, given, seed=seed)


def test_a_texts_constants_keys_and_times_are_found() -> None:
    found = hints_of(TEXT)
    assert found.keys == {"room", "k"}
    assert found.compared == {"v": (0.0, 40.0), "n": (-5.0, 0.0), "mean": (0.0, 90.0)}
    assert (found.texts, found.longest_s) == ({"kind": ("door",)}, 120.0)


def test_conditions_are_true_for_some_events_and_keys_are_as_many_as_wanted() -> None:
    rows = sampler().rows(1000).to_pylist()
    assert {row["k"] for row in rows} == {"k0", "k1", "k2"}
    assert {row["room"] for row in rows} == {0, 1, 2}
    assert {row["kind"] for row in rows} == {"door", "other"}
    assert 0.4 < sum(row["v"] > 40.0 for row in rows) / 1000 < 0.6
    assert 0.2 < sum(row["n"] < -5 for row in rows) / 1000 < 0.8
    assert {row["hot"] for row in rows} == {True, False}
    assert sampler().rows(5).equals(sampler().rows(5))
    assert not sampler(seed=2).rows(5).equals(sampler().rows(5))


def test_events_that_are_given_are_drawn_from() -> None:
    one = '{"k": "a", "kind": "door", "room": 7, "v": 1.5, "hot": true, "n": 4}'
    rows = sampler(given=(one,)).rows(3).to_pylist()
    assert [(row["k"], row["room"]) for row in rows] == [("a", 7)] * 3
    with pytest.raises(MeshError) as refused:
        sampler(given=('{"k": "a", "room": "x"}',))
    assert refused.value.code == "MESH-U161"
