"""The tables of states in docs/control-plane.md, row by row, beside the decision of the code."""

from __future__ import annotations

import pytest

from mesh.control.cluster_state import cluster_state_of
from mesh.control.lifecycle import AppState, app_status
from mesh.control.membership import HeartbeatStatus, heartbeat_status
from mesh.control.placement import Admits, candidates
from tests.support.cluster_lines import MARGIN_S, SETTINGS, TTL_S, node, snapshot
from tests.support.paths import ROOT

DOCUMENT = (ROOT / "docs" / "control-plane.md").read_text()

#: Each row's condition, and a cluster in which it holds and all rows below it as well: so the
#: decision is this row's only if it is checked first.
APP_STATES = {
    "it was undeployed": (
        "now=1 workers=w1:1,w2:1 apps=-A:g*3+gpu:h*2 placed=A-h-1:w1@5,A-h-2:w2@5"
        " reports=A-h-1:w1@5:retrying"
    ),
    "its channels are being made": (
        "now=1 workers=w1:1,w2:1 apps=_A:g*3+gpu:h*2 placed=A-h-1:w1@5,A-h-2:w2@5"
        " reports=A-h-1:w1@5:retrying"
    ),
    "its state is being restored": (
        "now=1 workers=w1:1,w2:1 apps=^A:g*3+gpu:h*2 placed=A-h-1:w1@5,A-h-2:w2@5"
        " reports=A-h-1:w1@5:retrying"
    ),
    "an operator has paused it": (
        "now=1 workers=w1:1,w2:1 apps=#A:g*3+gpu:h*2 placed=A-h-1:w1@5,A-h-2:w2@5"
        " reports=A-h-1:w1@5:retrying"
    ),
    "some instance is not placed": (
        "now=1 workers=w1:1,w2:1 apps=A:g+gpu:h*2 placed=A-h-1:w1@5,A-h-2:w2@5"
        " reports=A-h-1:w1@5:retrying"
    ),
    "some instance reports `retrying`": (
        "now=1 workers=w1:1,w2:1 apps=A:h*2 placed=A-h-1:w1@5,A-h-2:w2@5"
        " reports=A-h-1:w1@5:retrying"
    ),
    "some group has another revision than desired": (
        "now=1 workers=w1:1,w2:1 apps=A:h*4% forms=A:h*2% placed=A-h-1:w1@5,A-h-2:w2@6"
        " reports=A-h-1:w1@5:running,A-h-2:w2@5:running"
    ),
    "some instance has not reported `running` in its current epoch": (
        "now=1 workers=w1:1,w2:1 apps=A:h*2 placed=A-h-1:w1@5,A-h-2:w2@6"
        " reports=A-h-1:w1@5:running,A-h-2:w2@5:running"
    ),
    "none of these": (
        "now=1 workers=w1:1,w2:1 apps=A:h*2 placed=A-h-1:w1@5,A-h-2:w2@6"
        " reports=A-h-1:w1@5:running,A-h-2:w2@6:running"
    ),
}

ADMISSIONS = {
    "it received SIGTERM and waits for its instances to move": (
        "now=2.2 workers=w1:0:leaving:stuck orders=w1:draining"
    ),
    "an operator drains it": "now=2.2 workers=w1:0:stuck orders=w1:draining",
    "its process has not had a session yet": "now=2.2 workers=w1:0:cold orders=w1:cordoned",
    "its session has not been ready for `manager.hold_s`": (
        "now=2.2 workers=w1:0:stuck orders=w1:cordoned"
    ),
    "it is suspect": "now=2.2 workers=w1:0:starting orders=w1:cordoned",
    "an operator has cordoned it": "now=1 workers=w1:0:starting orders=w1:cordoned",
    "its session is not ready": "now=1 workers=w1:0:starting",
    "none of these": "now=1 workers=w1:0",
}

PRESENCES = {
    "less than `ttl_s`": (0.0, TTL_S - 0.001),
    "less than `ttl_s + margin_s`": (TTL_S, TTL_S + MARGIN_S - 0.001),
    "more, or no record": (TTL_S + MARGIN_S, 1e6),
}


def table(heading: str) -> dict[str, str]:
    """The first table below a heading: its first column to the first word of its second."""
    section = DOCUMENT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {row[0]: row[1].split(",")[0].split(" ")[0] for row in rows}


@pytest.mark.parametrize(
    ("heading", "rows", "values"),
    [
        ("An app's state", APP_STATES, AppState),
        ("What a worker admits", ADMISSIONS, Admits),
        ("Membership", PRESENCES, HeartbeatStatus),
    ],
)
def test_a_table_has_the_rows_that_are_tried_here_and_every_value_of_the_code(
    heading: str, rows: dict[str, object], values: type[AppState | Admits | HeartbeatStatus]
) -> None:
    written = table(heading)
    assert list(written) == list(rows)
    assert set(written.values()) == {value.value for value in values}


@pytest.mark.parametrize("row", APP_STATES)
def test_an_apps_state_is_that_of_the_first_row_that_holds(row: str) -> None:
    view = snapshot(APP_STATES[row])
    found = app_status(cluster_state_of(view, SETTINGS), view.apps[0].value)
    assert found.state.value == table("An app's state")[row]


@pytest.mark.parametrize("row", ADMISSIONS)
def test_a_worker_admits_what_the_first_row_says_that_holds(row: str) -> None:
    (host,) = candidates(snapshot(ADMISSIONS[row]), SETTINGS)
    assert host.admits.value == table("What a worker admits")[row]


@pytest.mark.parametrize("row", PRESENCES)
def test_a_node_is_there_for_as_long_as_the_table_says(row: str) -> None:
    for age_s in PRESENCES[row]:
        found = heartbeat_status(node("w1", 0.0), age_s, TTL_S, MARGIN_S)
        assert found.value == table("Membership")[row]
