"""Processes of a manager that may run functions of apps: they do by the setting only."""

from __future__ import annotations

import os
from typing import Any

import pytest

from mesh.clock import SystemClock
from mesh.functions.script_switch import SWITCH
from mesh.manager import past, what_ifs
from mesh.manager.queries import Queries
from mesh.settings import FunctionSettings, Settings


@pytest.mark.parametrize("python", [True, False])
def test_a_process_of_a_manager_has_the_setting(python: bool) -> None:
    nothing: Any = None
    settings = Settings(functions=FunctionSettings(python=python))
    queries = Queries(nothing, nothing, nothing, settings, SystemClock())
    for process in (queries._process, past._process(python), what_ifs._process(python)):
        try:
            # As the process itself reads it, whatever the environment of the manager says.
            assert process.call(60.0, os.getenv, SWITCH) == str(python).lower()
        finally:
            process.stop()
