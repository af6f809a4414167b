"""The screen of the demo."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from mesh.cli import demo_view

if TYPE_CHECKING:
    import pytest


def test_the_demo_speaks_in_plain_lines_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = demo_view.make_view(io.StringIO())
    view.say("hello")
    view.published(5, 10, 2.5)
    view.published(10, 10, 2.5)
    tally = demo_view.StreamTally(3)
    tally.recent.append('{"roomNo":100}')
    view.outputs({"AlertStream": tally})
    instance = {
        "instance": "T-g-1", "worker": "w1", "events_in": 10, "events_out": 3, "batch_ms_p50": 1.5,
    }  # fmt: skip
    rows = [("AlertStream", 3, 0, 0, 1.0, 2.0)]
    view.summary([("steady", "10 events")], rows, [instance], ["mesh init shop"])
    view.close()
    said = capsys.readouterr().out
    assert "\x1b" not in said
    for words in (
        "published 10 of 10 events",
        '{"roomNo":100}',
        "AlertStream",
        "T-g-1",
        "w1",
        "steady  10 events",
        "  mesh init shop",
    ):
        assert words in said
