"""Apps in the style of the reference's guides: their sources, sinks and mappers are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.plan.build import plan

APPS = sorted((Path(__file__).parent / "apps").glob("*.siddhi"))


@pytest.mark.parametrize("path", APPS, ids=lambda path: path.stem)
def test_an_app_is_planned_as_it_is_written(path: Path) -> None:
    text = path.read_text("utf-8")
    planned = plan(text)
    connectors = [group for group in planned.spec.groups if group.connectors]
    assert len(connectors) == text.count("@source(") + text.count("@sink(")
