"""Work on the text of an app that needs no cluster: to validate, plan, play and test it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mesh.client.checking import Checked
    from mesh.model.values import JsonMapping, JsonObject


def validate(text: str, *, name: str = "", variables: Mapping[str, str] | None = None) -> Checked:
    """All errors and warnings of a text.

    Args:
        text: SiddhiQL.
        name: that of the app, if the text has none.
        variables: values of ``${NAME}``; the environment has the others.
    """
    # Each function here loads the parser, and more, when it is called.
    from mesh.client.checking import check

    return check(text, variables or {}, name)


def plan(text: str, *, name: str = "") -> JsonObject:
    """The groups, instances and channels of an app, as ``mesh plan --output json`` prints them.

    Raises:
        MeshError: MESH-L* and MESH-P* of the text.
    """
    from mesh.language.naming import named
    from mesh.plan.build import plan as build
    from mesh.plan.explain import to_values

    return to_values(build(named(text, name)))


def play(text: str, events: Iterable[JsonMapping]) -> list[JsonObject]:
    """The events that an app emits for others, in this process; their times are its clock.

    Args:
        text: SiddhiQL.
        events: as ``{"time": ms since 1970, "stream": "S", "event": {"attribute": value}}``, in
            order of time; one with a time alone lets time pass.

    Returns:
        The same for each event that the app emits.

    Raises:
        MeshError: MESH-L* and MESH-P* of the text; MESH-U161 for an event that does not fit.
    """
    from mesh.plan.build import plan as build
    from mesh.testing.app_tests import TimedEvent
    from mesh.testing.app_tests import play as run

    # The operators alone would run an app that can't be deployed.
    build(text)
    inputs = [TimedEvent(e["time"], e.get("stream", ""), e.get("event")) for e in events]
    outputs = run(text, inputs)
    return [{"time": one.time_ms, "stream": one.stream, "event": one.event} for one in outputs]


def test(app: Path | str) -> list[str]:
    """The differences of an app's test, none if it passes; as ``mesh test`` without a cluster.

    Args:
        app: the path of NAME.siddhi, beside NAME.events.jsonl and NAME.expected.jsonl.

    Raises:
        MeshError: MESH-U120 and MESH-U160 for files that can't be read, and as ``play``.
    """
    from mesh.plan.build import plan as build
    from mesh.testing import app_tests

    path = Path(app)
    text = path.read_text(encoding="utf-8-sig")
    build(text)
    outputs = app_tests.play(text, app_tests.read(app_tests.events_path(path)))
    return app_tests.differences(outputs, app_tests.read(app_tests.expected_path(path)))


# A function of this name is no test of pytest.
test.__test__ = False  # type: ignore[attr-defined]
