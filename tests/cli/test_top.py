"""``mesh top`` shows what ``GET /overview`` says, worst first, within the height of a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from rich.console import Console
from typer.testing import CliRunner

from mesh import client
from mesh.cli import commands
from mesh.cli.top import screen
from mesh.control.lifecycle import AppState, AppStatus, InstanceView
from mesh.manager.nodes import NodeView
from mesh.manager.overview import overview
from mesh.manager.problems import problem_of_app
from mesh.manager.rates import Flow

if TYPE_CHECKING:
    import pytest


def instance(name: str, state: str, **more: Any) -> InstanceView:
    return InstanceView(name, "g", "w1", 1, state, **more)


def found(apps: int = 1) -> dict[str, Any]:
    statuses = [
        AppStatus(f"Fine{n}", AppState.RUNNING, None, (instance(f"Fine{n}-g-1", "running"),))
        for n in range(apps)
    ]
    broken = instance("Shop-g-1", "retrying", error="[bold]broken", behind=12_000)
    statuses.append(AppStatus("Shop", AppState.FAILING, "Shop-g-1: [bold]broken", (broken,)))
    nodes = [
        NodeView("m1", "manager", "alive", True, True, "", 1, 0, 5.0, 10**8),
        NodeView("w1", "worker", "gone", False, False, "", 2, 1, 0.0, 10**9),
    ]
    flows = {"Shop": Flow(50.0, 1234.5, 2.0, 0.0, 12_000, 9.7, 0.02)}
    made = orjson.loads(orjson.dumps(overview(statuses, nodes, "m1", failed={"Shop": 3})))
    return {**made, "flows": orjson.loads(orjson.dumps(flows))}


def drawn(values: dict[str, Any], height: int | None = None) -> list[str]:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(screen(values, height))
    return [line.strip() for line in console.export_text().splitlines()]


def test_the_worst_is_first_and_has_its_cure() -> None:
    lines = drawn(found())
    assert lines[0] == "leader m1   1 of 2 apps running   1 of 2 nodes alive   4 problems"
    text = "\n".join(lines)
    # What users write is shown as it is.
    assert "! app Shop fails: Shop-g-1: [bold]broken" in text
    assert "(mesh status Shop)" in text
    shop = next(line for line in lines if line.startswith("Shop "))
    for value in ("failing", "0 of 1", "1,234.5", "12,000", "9.7", "20.0"):
        assert value in shop
    assert text.index("\nShop ") < text.index("\nFine0 ")
    assert text.index("\nw1 ") < text.index("\nm1 ")


def test_apps_have_their_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "Shop--2ENorth"
    values = found()
    values["apps"][0]["app"] = name
    assert any(line.startswith("Shop.North ") for line in drawn(values))
    status = AppStatus(name, AppState.FAILING, "no", ())
    problem = problem_of_app(status)
    assert problem is not None
    assert problem.title == "app Shop.North fails"
    assert problem.name == name
    shown = [{"app": name, "state": "failing", "reason": None}]
    monkeypatch.setattr(client.Client, "apps", lambda _: shown)
    at = ["--server", "http://127.0.0.1:1"]
    assert "Shop.North " in CliRunner().invoke(commands.app, ["apps", *at]).stdout
    answer = {"state": "running", "instances": []}
    monkeypatch.setattr(client.Client, "status", lambda *_: answer)
    told = CliRunner().invoke(commands.app, ["status", "Shop.North", *at]).stdout
    assert told.startswith('app "Shop.North" is running')


def test_a_small_screen_is_not_exceeded_and_counts_the_rest() -> None:
    for height in (24, 50):
        lines = drawn(found(apps=500), height)
        assert len(lines) <= height
        assert any("more apps" in line for line in lines)


def test_the_command_prints_the_overview_of_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    values = found()
    monkeypatch.setattr(client.Client, "overview", lambda self: values)
    arguments = ["top", "--server", "http://127.0.0.1:1"]
    said = CliRunner().invoke(commands.app, arguments)
    assert said.exit_code == 0, said.output
    assert said.output.startswith("leader m1")
    as_json = CliRunner().invoke(commands.app, [*arguments, "--output", "json"])
    assert orjson.loads(as_json.output) == values
