"""Processes of a manager run no functions of apps in Python: these are for workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.functions.script_switch import SWITCH
from mesh.functions.scripts import compile_scripts
from mesh.language.parser import parse
from mesh.manager import past, previews
from mesh.manager.history_runs import process_environment
from mesh.manager.queries import Queries
from mesh.plan.bind import bind
from mesh.settings import FunctionSettings, Settings

if TYPE_CHECKING:
    from mesh.processes.bounded_process import Process
    from tests.support.environment import Variables


TEXT: Final = """define stream S (a int);
define function f[python] return int { return 1 };
from S select f(a) as b insert into T;"""
SCRIPTS: Final = bind(parse(TEXT)).scripts


def _processes() -> list[Process]:
    nothing: Any = None
    settings = Settings(functions=FunctionSettings(python=True))
    queries = Queries(nothing, nothing, nothing, settings, SystemClock())
    return [queries._process, past._PROCESS, previews._CALIBRATION, previews._PROCESS]


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("at", range(4), ids=["queries", "past", "what-if", "preview"])
def test_a_process_of_a_manager_runs_no_function(at: int) -> None:
    process = _processes()[at]
    assert "f" in compile_scripts(SCRIPTS)
    try:
        with pytest.raises(MeshError, match="not run by a manager"):
            process.call(60.0, compile_scripts, SCRIPTS)
    finally:
        process.stop()


def test_the_process_of_a_history_runs_no_function(environment: Variables) -> None:
    environment["MESH_NATS_PASSWORD"] = "hunter2"
    variables = process_environment()
    assert "hunter2" not in variables.values()
    environment[SWITCH] = variables[SWITCH]
    with pytest.raises(MeshError, match="not run by a manager"):
        compile_scripts(SCRIPTS)
