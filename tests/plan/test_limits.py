"""Limits of what a cluster can run."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from mesh.plan.build import plan


def _text(stream: str, key: str = "k") -> str:
    return f"""@App:name('A')
define stream S ({key} string);
from S select {key} insert into {stream};
@dist(execGroup='g', parallel='2')
partition with ({key} of S) begin from S select {key} insert into O; end;
"""


def test_a_name_of_the_longest_length_is_planned() -> None:
    (channel,) = [one for one in plan(_text("T" * 248)).spec.channels if one.stream.name[0] == "T"]
    assert len(channel.js_stream()) == 255


def test_a_longer_name_than_the_server_stores_is_refused_where_it_stands() -> None:
    with pytest.raises(MeshError) as refused:
        plan(_text("T" * 249))
    error = refused.value
    assert (error.code, error.position and error.position.line) == ("MESH-P214", 3)
    assert "256" in str(error.detail)
    with pytest.raises(MeshError, match=r'"S" by k{40}\.\. is too long') as refused:
        plan(_text("T", "k" * 250))
    assert "of its key" in str(refused.value.hint)
