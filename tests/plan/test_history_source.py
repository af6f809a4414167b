"""Past events that a text names."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from mesh.model.history import HistoryInput
from mesh.plan.build import plan
from mesh.plan.history_source import history_inputs

TEXT = """@App:name('A') @source(type='history', {options})
define stream S (k string, ms long);
from S select k insert into T;"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("path='old', time='ms'", HistoryInput("S", "old", "ms")),
        ("path='nats:OLD', until='7'", HistoryInput("S", "nats:OLD", "", "7")),
        ("path='nats:OLD#a.>', Time='ms'", HistoryInput("S", "nats:OLD#a.>", "ms")),
    ],
)
def test_a_text_names_files_or_a_stream(options: str, expected: HistoryInput) -> None:
    text = TEXT.format(options=options)
    plan(text)
    assert history_inputs(text) == (expected,)


@pytest.mark.parametrize(
    ("options", "code"),
    [("path='old'", "MESH-P231"), ("time='ms'", "MESH-P231"), ("path='nats:OLD', until='start'",
                                                                "MESH-P232")],
)  # fmt: skip
def test_options_that_name_no_past_are_refused(options: str, code: str) -> None:
    with pytest.raises(MeshError, match=code):
        plan(TEXT.format(options=options))
