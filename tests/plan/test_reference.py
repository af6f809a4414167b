"""Apps that the reference engine accepts or refuses, and our verdict on them.

The expectations are data that the engine produced.  If ours differs permanently, the case is named
below with the reason.
"""

from __future__ import annotations

from typing import Any

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.plan.bind import bind
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from tests.support.plans import triggered
from tests.support.reference import HEADER, ROWS, runs
from tests.support.together import together

#: Refused there, accepted here: a minus before a name; and parts of extensions that the engine ran
#: without.
WIDER = {"neg var", "event ns call", "math", "function def"}


def made_of(app: str) -> str | dict[str, list[str]]:
    """The code of the refusal, or the streams that no definition names."""
    try:
        tree = parse(app)
        bound = bind(tree)
    except MeshError as error:
        return error.code
    defined = {definition.name for definition in tree.streams}
    return {
        stream.name: [f"{a.name} {a.type}" for a in stream.attributes]
        for stream in bound.streams
        if stream.name not in defined
    }


def test_the_source_is_named() -> None:
    assert HEADER["source"] == "Siddhi 5.1.7"


@together("row", ROWS, ids=[row["case"] for row in ROWS])
def test_apps_are_accepted_and_refused_as_by_the_reference_engine(row: dict[str, Any]) -> None:
    made = made_of(row["app"])
    if row["case"] in WIDER:
        assert row["siddhi"] == "refused"
        assert isinstance(made, dict)
    elif row["siddhi"] == "refused":
        assert isinstance(made, str), f"accepted, giving {made}"
    else:
        assert made == row["inferred"]


RUNNABLE = [row for row in ROWS if runs(row["app"])]


@together("row", RUNNABLE, ids=[row["case"] for row in RUNNABLE])
def test_a_groups_text_binds_to_what_it_was_cut_from(row: dict[str, Any]) -> None:
    app = row["app"]
    try:
        made = plan(app if "@App:name" in app else f"@App:name('X') {app}")
    except MeshError as error:
        refused = error.code
    else:
        parts = [query for group in made.spec.groups for query in bind_group(group).queries]
        assert parts == [triggered(query) for query in made.bound.queries]
        return
    # With a loop of one query through itself.
    assert refused == "MESH-P900"
