"""Configurations of simulations, and the outcomes of their actions."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.control.simulating import ACTIONS, check, transition
from mesh.errors import MeshError
from mesh.model.simulation import FeedState, feed_of
from mesh.model.types import AttributeType

INT, STRING, DOUBLE, BOOL = (AttributeType(t) for t in ("int", "string", "double", "bool"))


def of_random(*rules: dict[str, Any], **more: str) -> dict[str, Any]:
    source = {"siddhiAppName": "A", "streamName": "S", "timestampInterval": "10", **more}
    kind = {"simulationType": "RANDOM_DATA_SIMULATION", "attributeConfiguration": list(rules)}
    return source | kind


def of_file(**more: Any) -> dict[str, Any]:
    source = {"siddhiAppName": "A", "streamName": "F", "simulationType": "CSV_SIMULATION"}
    return {**source, "fileName": "a.csv", "timestampInterval": "15", **more}


def configured(*sources: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {"properties": {"simulationName": "f", **properties}, "sources": list(sources)}


DIGIT = {"type": "PRIMITIVE_BASED", "primitiveType": "INT", "min": "0", "max": "9"}


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "(?=a)b",
        r"(a)\1",
        "a{5000}",
        "(){4000000000}",
        "((((){1000}){1000}){1000})",
        r"[^\x00-\xff]",
    ],
)
def test_patterns_without_texts_are_refused_at_once(pattern: str) -> None:
    rule = {"type": "REGEX_BASED", "pattern": pattern}
    with pytest.raises(MeshError, match="the simulation is invalid"):
        check(feed_of(configured(of_random(rule))))


@pytest.mark.parametrize(
    "values",
    [
        None, [], {}, {"properties": {}, "sources": []},
        configured(),
        configured(of_random(DIGIT), simulationName=""),
        configured(of_random(DIGIT), simulationName="a/b"),
        configured(of_random(DIGIT), simulationName="a\nb"),
        configured(of_random(DIGIT), noOfEvents="many"),
        configured(of_random(DIGIT), timeInterval="9" * 5000),
        configured(of_random(DIGIT), startTimestamp="2", endTimestamp="1"),
        configured(of_random()),
        configured(of_random({"type": "PROPERTY_BASED", "category": "Contact"})),
        configured(of_random({**DIGIT, "primitiveType": "OBJECT"})),
        configured(of_random({**DIGIT, "min": "nan"})),
        configured(of_random({**DIGIT, "length": "1001"})),
        configured({**of_random(DIGIT), "simulationType": "DATABASE_SIMULATION"}),
        configured(of_file(delimiter="ab")), configured(of_file(indices="a")),
        configured(of_file(fileName="")), configured("x"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_configurations_of_another_form_are_refused(values: Any) -> None:
    with pytest.raises(MeshError) as refused:
        feed_of(values)
    assert refused.value.code == "MESH-A400"


def test_every_action_has_an_outcome_in_every_state() -> None:
    allowed = {
        (action, state): to
        for action in ACTIONS
        for state in FeedState
        if isinstance(to := transition(action, state)[0], FeedState)
    }
    assert allowed == {
        ("run", "STOP"): "RUN", ("pause", "RUN"): "PAUSE", ("resume", "PAUSE"): "RUN",
        ("stop", "RUN"): "STOP", ("stop", "PAUSE"): "STOP",
    }  # fmt: skip
