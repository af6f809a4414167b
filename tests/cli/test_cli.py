"""The mesh command without a cluster: help, exit codes, errors, contexts, messages."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import msgpack  # type: ignore[import-untyped]  # has no stubs
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from mesh.cli import demo_run, demo_view, local
from mesh.cli.apps import deploy_and_wait
from mesh.cli.client import CommandClient
from mesh.cli.commands import app
from mesh.client import ClientContext, wire
from mesh.errors import MeshError
from mesh.progress import working
from mesh.settings import Settings
from pyspark_nats.arrow import ipc_stream
from tests.support.paths import EXAMPLE

COMMANDS = (
    "dev", "demo", "validate", "format", "explain", "plan", "diff", "deploy", "undeploy", "apps",
    "status", "errors", "query", "replay", "discard", "nodes", "cordon", "uncordon", "drain",
    "publish", "tap", "manager", "worker",
)  # fmt: skip


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory and an environment without a cluster's context."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("SERVER", "USER", "PASSWORD", "CA", "NATS_URL", "CONTEXT"):
        monkeypatch.delenv(f"MESH_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(alone: Path, command: str) -> None:
    said = CliRunner().invoke(app, [command, "--help"])
    assert said.exit_code == 0
    assert "Example:" in said.output
    assert f"mesh {command}" in said.output


def test_help_and_client_commands_load_nothing_heavy(alone: Path) -> None:
    program = (
        "import sys\n"
        "from mesh.cli.commands import app\n"
        "import mesh.client, mesh.cli.events\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'numpy', 'mesh.plan'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr


def test_a_valid_app_is_said_to_be(alone: Path) -> None:
    said = CliRunner().invoke(app, ["validate", str(EXAMPLE)])
    assert said.exit_code == 0
    assert 'app "Temperature" is valid' in said.output


def test_a_fault_is_shown_with_its_line_and_exit_code_1(alone: Path) -> None:
    path = alone / "bad.siddhi"
    path.write_text(EXAMPLE.read_text().replace("e1=TempStream", "e1=TempStreem"))
    said = CliRunner().invoke(app, ["validate", str(path)])
    assert said.exit_code == 1
    assert said.stdout == ""
    assert f"--> {path}:7:" in said.stderr
    assert "^" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_fault_as_json_has_its_position(alone: Path) -> None:
    path = alone / "bad.siddhi"
    path.write_text(EXAMPLE.read_text().replace("e1=TempStream", "e1=TempStreem"))
    said = CliRunner().invoke(app, ["plan", str(path), "--output", "json"])
    assert said.exit_code == 1
    error = json.loads(said.stdout)["error"]
    assert error["code"].startswith("MESH-")
    assert error["position"]["line"] == 7


def test_a_text_comes_from_standard_input(alone: Path) -> None:
    said = CliRunner().invoke(app, ["plan", "-", "-o", "json"], input=EXAMPLE.read_text())
    assert said.exit_code == 0
    assert json.loads(said.stdout)["app"] == "Temperature"


@pytest.mark.parametrize(
    "arguments",
    [
        ["deploy"],
        ["no-such-command"],
        ["tap", "A", "B", "--count", "x"],
        ["apps", "--output", "xml"],
    ],
)
def test_usage_errors_end_with_2(alone: Path, arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["validate", "none.siddhi"], "MESH-U120"),
        (["apps"], "no cluster named"),
        (["tap", "App", "Stream"], "no NATS named"),
        (["publish", "a.b", "S", "x", "--nats", "nats://127.0.0.1:1"], "MESH-U120"),
        (["tap", "A", "a.b", "--nats", "nats://127.0.0.1:1"], "MESH-U121"),
        (["tap", "App", "Stream", "--nats", "nats://127.0.0.1:1"], "MESH-N110"),
        (["apps", "--server", "http://127.0.0.1:1"], "can't be reached"),
        (["apps", "--context", "none.json"], "MESH-U130"),
        (["manager", "--config", "none.yaml"], "MESH-U100"),
    ],
)
def test_expected_errors_are_sentences_and_end_with_1(
    alone: Path, arguments: list[str], words: str
) -> None:
    said = CliRunner().invoke(app, arguments)
    assert said.exit_code == 1
    assert words in said.stderr
    assert "Traceback" not in said.stderr


def test_a_user_is_added_with_the_password_of_the_environment(alone: Path) -> None:
    runner = CliRunner()
    for words in ("added to", "new password"):
        said = runner.invoke(
            app, ["user", "add", "ada", "--file", "u"], env={"MESH_NEW_PASSWORD": "twelve letters"}
        )
        assert said.exit_code == 0
        assert words in said.output
    assert (alone / "u").read_text().startswith("ada:$argon2id$")


def test_messages_are_decoded_by_their_content_type() -> None:
    event = {"a": 1, "b": "x"}
    arrow = ipc_stream(pa.Table.from_pylist([event, event]))
    assert wire.decode(arrow, "application/vnd.apache.arrow.stream") == [event, event]
    assert wire.decode(msgpack.packb(event), "application/msgpack") == [event]
    assert wire.decode(b'{"a":1,"b":"x"}', "") == [event]
    assert wire.decode(b'[{"a":1,"b":"x"}]', "application/json; charset=utf-8") == [event]
    assert wire.decode(b'{"a":1,"b":"x"}\n{"a":1,"b":"x"}\n', "application/json") == [event] * 2
    for data, kind in ((b"{", ""), (b"no", "application/vnd.apache.arrow.stream")):
        with pytest.raises(MeshError, match="can't be read"):
            wire.decode(data, kind)


def test_csv_is_typed_by_the_stream() -> None:
    schema = {"n": "long", "x": "double", "ok": "bool", "s": "string"}
    text = 'n,x,ok,s,more\n1,2,true,"a, b",z\n,,,,\n\n-3,1e3,False,7,\n'
    rows = [json.loads(event) for event in wire.csv_events(io.StringIO(text), schema)]
    assert rows == [
        {"n": 1, "x": 2.0, "ok": True, "s": "a, b", "more": "z"},
        {"n": None, "x": None, "ok": None, "s": None, "more": None},
        {"n": -3, "x": 1000.0, "ok": False, "s": "7", "more": None},
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n\n1\nmany\n", "line 3: \"n\" is long, not 'many'"),
        ("ok\nyes\n", 'line 2: "ok" is bool'),
        ("n,ok\n1\n", "line 2 has 1 fields, not 2"),
    ],
)
def test_csv_that_does_not_fit_names_the_line(text: str, words: str) -> None:
    with pytest.raises(MeshError) as error:
        list(wire.csv_events(io.StringIO(text), {"n": "long", "ok": "bool"}))
    assert words in error.value.message


def test_quantiles_are_values_that_were_there() -> None:
    assert demo_run.quantiles([]) == (None, None)
    assert demo_run.quantiles([7.0]) == (7.0, 7.0)
    assert demo_run.quantiles([float(n) for n in range(101)]) == (50.0, 99.0)


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


def test_two_clusters_do_not_share_a_directory(tmp_path: Path) -> None:
    held = local._lock(tmp_path)
    assert local.in_use(tmp_path)
    with pytest.raises(MeshError, match="in use"):
        local.start(local.LocalPlan(tmp_path, 1, Settings()))
    held.close()
    assert not local.in_use(tmp_path)


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
    ]
