"""States written by earlier versions are read, and continued with the right answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.operators.executor import STATE_VERSION
from tests.support import paths
from tools import states
from tools.state_apps import APPS

CASES = paths.CASES / "compat"
FILES = sorted(CASES.glob("*/*.zip"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_state_is_read_and_gone_on_from(path: Path, tmp_path: Path) -> None:
    recorded = states.read(path, tmp_path)
    assert recorded.rows
    assert states.go_on(recorded) == recorded.rows


def test_every_kind_of_operator_has_a_state_of_this_version() -> None:
    found = {path.stem for path in FILES if path.parent.name == str(STATE_VERSION)}
    assert found == set(APPS)


@pytest.mark.parametrize("name", ["aggregators", "rates"])
def test_what_is_recorded_is_the_same_each_time(name: str) -> None:
    assert states.record(APPS[name]) == states.record(APPS[name])
