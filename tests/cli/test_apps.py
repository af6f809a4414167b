"""Commands for apps that are deployed: what they say while they wait, and of failures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from mesh.cli.apps import deploy_and_wait, describe_deploy
from mesh.cli.commands import app
from mesh.cli.options import CommandClient
from mesh.client import ClientContext
from mesh.processes.progress import working

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_status_tells_when_what_failed_is_started_again(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {
        "instance": "A-g-1", "state": "retrying", "error": "no such column", "restarts": 3,
        # Half past three in the morning, and 4 s.
        "retry_at_ms": (3 * 3600 + 30 * 60 + 4) * 1000,
    }  # fmt: skip
    running = {"instance": "A-g-2", "state": "running", "retry_at_ms": None}
    found = {"app": "A", "state": "failing", "instances": [failing, running]}
    monkeypatch.setattr(CommandClient, "status", lambda self, app: found)
    said = CliRunner().invoke(app, ["status", "A", "--server", "http://nowhere.invalid"])
    assert said.exit_code == 0, said.output
    lines = said.stdout.splitlines()
    at = lines.index("A-g-1: no such column")
    assert lines[at + 1 :] == ["  it is started again at 03:30:04 UTC"]


def test_a_wait_for_an_app_shows_its_reason_and_how_many_instances_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = [{"state": "running"}, {"state": "starting"}]
    states = [
        {"state": "starting", "reason": "no session", "instances": two},
        # It waits as long, however many of its instances run.
        {"state": "waiting", "reason": 'no worker has connector "x"', "instances": two},
        {"state": "running", "instances": two[:1] * 2},
    ]
    told: list[str] = []
    with CommandClient(ClientContext("https://localhost:1")) as client, working("a deploy") as work:
        monkeypatch.setattr(client, "deploy", lambda *_, **__: {"app": "Shop"})

        def answer(*_: object, **__: object) -> object:
            told.append(work.line())
            return states.pop(0)

        monkeypatch.setattr(client, "call", answer)
        found = deploy_and_wait(client, "an app", 100.0)
    assert found["running"]
    assert [re.sub(r"\d+ s.*\)", "", line) for line in told] == [
        "a deploy ( ...",
        'app "Shop" is starting: no session (1 of 2,  ...',
        'app "Shop" is waiting: no worker has connector "x" ( ...',
    ]


def test_a_deploy_shows_them() -> None:
    done = {
        "app": "A", "status": None, "seconds": 0.0, "running": False,
        "warnings": ["source http is not opened"],
    }  # fmt: skip
    assert describe_deploy(done).splitlines() == [
        'app "A" is deployed', "  warning: source http is not opened",
    ]  # fmt: skip
