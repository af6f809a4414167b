"""``mesh preview``: on this machine, and against a manager."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mesh import client
from mesh.cli.commands import app
from tests.support.manager_api import manager_api

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

TEXT = """@App:name('Shop')
define stream Orders (item string, price double);
@info(name='dear') from Orders[price > 100.0] select item, price insert into Dear;
from Orders#window.timeBatch(1 sec) select count() as n insert into Counts;
"""
START_MS = 1_767_225_600_000
LINES = "".join(
    json.dumps(
        {"time": START_MS + n * 600, "stream": "Orders", "event": {"item": "pen", "price": n * 60}}
    )
    + "\n"
    for n in range(4)
)


def write(directory: Path, text: str = TEXT) -> tuple[str, str]:
    file, events = directory / "shop.siddhi", directory / "shop.events.jsonl"
    file.write_text(text)
    events.write_text(LINES)
    return str(file), str(events)


@pytest.mark.slow
def test_outputs_are_shown_with_their_causes_and_kept_as_a_test(tmp_path: Path) -> None:
    file, events = write(tmp_path)
    kept = tmp_path / "kept.yaml"
    command = ["preview", file, "--events", events]
    said = CliRunner().invoke(app, [*command, "--keep-as-test", str(kept)])
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines() == [
        '  1 2026-01-01T00:00:00.000Z Orders {"item":"pen","price":0}',
        '  2 2026-01-01T00:00:00.600Z Orders {"item":"pen","price":60}',
        "   timers",
        '     2026-01-01T00:00:00.600Z Counts {"n":2}',
        '  3 2026-01-01T00:00:01.200Z Orders {"item":"pen","price":120}',
        '     2026-01-01T00:00:01.200Z Dear {"item":"pen","price":120.0}',
        '  4 2026-01-01T00:00:01.800Z Orders {"item":"pen","price":180}',
        '     2026-01-01T00:00:01.800Z Dear {"item":"pen","price":180.0}',
        'app "Shop": 4 events, 3 out',
        "next timer: 2026-01-01T00:00:02.000Z",
        f"wrote {kept}",
    ]
    assert CliRunner().invoke(app, ["test", str(kept)]).exit_code == 0
    found = json.loads(CliRunner().invoke(app, [*command, "-o", "json"]).stdout)
    assert [(o["stream"], o["input"], o["timer"]) for o in found["outputs"]] == [
        ("Counts", 3, True),
        ("Dear", 3, False),
        ("Dear", 4, False),
    ]
    wrong = CliRunner().invoke(app, ["preview", file])
    assert wrong.exit_code == 2
    (tmp_path / "shop.siddhi").write_text(TEXT.replace("price >", "prices >"))
    refused = CliRunner().invoke(app, command)
    assert (refused.exit_code, "MESH-L202" in refused.stderr) == (1, True)


@pytest.mark.slow
@pytest.mark.nats
@pytest.mark.timeout(120)
def test_stored_events_are_compared_with_the_running_text(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    file, events = write(tmp_path, TEXT.replace("100.0", "150.0"))
    with manager_api(nats_server, tmp_path) as url:
        at = client.ClientContext(url, "ada", "pw", nats=nats_server.url)
        with client.Client(at) as cluster:
            cluster.deploy(TEXT)
            rows = [{"item": "pen", "price": 60.0 * n} for n in range(4)]
            cluster.publish("Shop", "Orders", rows)
            found = cluster.preview(TEXT, events=LINES, against="Shop")
        known = {"MESH_SERVER": url, "MESH_USER": "ada", "MESH_PASSWORD": "pw"}
        command = ["preview", file, "--from", "Orders", "--against", "Shop"]
        said = CliRunner().invoke(app, command, env=known)
        both = CliRunner().invoke(app, [*command[:4], "--events", events, "--last", "2"], env=known)
    assert found["against"]["differs"] is False
    assert said.exit_code == 1, said.output
    told = said.stdout.splitlines()
    assert told[0] == "Dear: 1 same, 0 new, 1 gone, 0 changed"
    assert told[1].startswith("  - ")
    assert told[1].endswith('Dear {"item":"pen","price":120.0}')
    assert told[-1].startswith('app "Shop": 4 events, 1 out') or told[-2].startswith('app "Shop"')
    assert both.exit_code == 0, both.output
    assert 'app "Shop": 6 events' in both.stdout
