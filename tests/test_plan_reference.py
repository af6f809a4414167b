"""What the reference engine accepts and refuses, and what we make of the same apps.

The expectations are data that the engine produced.  Ours may refuse more, as not supported yet;
where it differs for good, the case is named below with the reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.plan.bind import bind
from mesh.plan.build import bind_group, plan

_FILE = Path(__file__).parent / "cases" / "plan" / "reference.jsonl"
HEADER, *ROWS = [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]

#: Accepted there, refused here: what it accepts can only fail, or mean nothing, when events come.
STRICTER: dict[str, str] = {
    "int + bool": "MESH-L207",
    # Always false there, whatever stream is named.
    "stream isnull": "MESH-L202",
    "pattern: dup ref": "MESH-L215",
    # Nothing ever comes out of them there.
    "expired no window": "MESH-L216",
    "pattern: expired": "MESH-L216",
}
#: Refused there, accepted here.
WIDER = {"neg var"}


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


@pytest.mark.parametrize("row", ROWS, ids=[row["case"] for row in ROWS])
def test_apps_are_accepted_and_refused_as_by_the_reference_engine(row: dict[str, Any]) -> None:
    made = made_of(row["app"])
    if row["case"] in STRICTER:
        assert row["siddhi"] == "accepted"
        assert made == STRICTER[row["case"]]
    elif row["case"] in WIDER:
        assert row["siddhi"] == "refused"
        assert isinstance(made, dict)
    elif row["siddhi"] == "refused":
        assert isinstance(made, str), f"accepted, giving {made}"
    else:
        assert made in ("MESH-P900", row["inferred"])


RUNNABLE = [row for row in ROWS if isinstance(made_of(row["app"]), dict)]


@pytest.mark.parametrize("row", RUNNABLE, ids=[row["case"] for row in RUNNABLE])
def test_a_groups_text_binds_to_what_it_was_cut_from(row: dict[str, Any]) -> None:
    app = row["app"]
    try:
        made = plan(app if "@App:name" in app else f"@App:name('X') {app}")
    except MeshError as error:
        refused = error.code
    else:
        parts = [query for group in made.spec.groups for query in bind_group(group).queries]
        assert parts == list(made.bound.queries)
        return
    # Without a query, or with a loop of one query through itself.
    assert refused in ("MESH-P103", "MESH-P900")
