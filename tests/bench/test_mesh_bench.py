"""What the bench of the mesh deploys, and what it answers without measuring."""

from __future__ import annotations

import pytest

from bench.mesh import deciding, failover, harness
from bench.mesh.__main__ import main
from mesh.plan.build import plan


@pytest.mark.parametrize(
    ("text", "stateful"),
    [
        (harness.APP, [True, False]),
        (deciding.FOUR, [False, True, False, True]),
        (failover.LIGHT, [True]),
        (failover.HEAVY, [True]),
    ],
)
def test_apps_have_the_groups_that_the_figures_name(text: str, stateful: list[bool]) -> None:
    spec = plan(text.format(name="App")).spec
    assert [group.stateful for group in spec.groups] == stateful
    assert all(group.parallel == 1 for group in spec.groups)


def test_the_channel_of_a_stream_is_found() -> None:
    spec = plan(harness.APP.format(name="App")).spec
    assert harness.channel(spec, "Input") == ("mesh-App-Input", "mesh.App.Input")


def test_a_measurement_that_there_is_not_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "idle,nothing"]) == 2
    assert "no such measurement: nothing" in capsys.readouterr().err
