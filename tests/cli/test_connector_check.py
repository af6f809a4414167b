"""``mesh check``: sources and sinks are opened, a sample is read, and nothing is changed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from mesh.cli.commands import app
from tests.support.api import OPEN, FakeService, served

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

APP = """@App:name('Checked')
@source(type='file', file.uri='{directory}/in.csv', @map(type='csv'))
@source(type='http', receiver.url='http://127.0.0.1:0/in', @map(type='json'))
@source(type='inMemory', topic='t', @map(type='json'))
define stream S (k string, n int);
@sink(type='file', file.uri='{directory}/out.csv', append='false', @map(type='csv'))
@sink(type='http', publisher.url='http://127.0.0.1:1/', @map(type='json'))
@sink(type='http', @map(type='json'), @distribution(strategy='broadcast',
      @destination(publisher.url='http://{{{{k}}}}/'),
      @destination(publisher.url='http://h/{{{{k}}}}')))
@sink(type='file', file.uri='/etc/x', @map(type='csv'))
define stream T (k string, n int);
@store(type='rdbms', jdbc.url='jdbc:sqlite:{directory}/kept.db') @PrimaryKey('k')
define table Kept (k string, n int);
@store(type='rdbms', datasource='SHOP') @PrimaryKey('k') define table Lost (k string, n int);
from S select k, n insert into T;
from S select k, n insert into Kept;
"""


def test_each_is_opened_and_nothing_is_changed(nats_server: NatsServer, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,1\nb,x\n")
    (tmp_path / "out.csv").write_text("kept\n")
    path, config = tmp_path / "app.siddhi", tmp_path / "mesh.yaml"
    path.write_text(APP.format(directory=tmp_path))
    settings: dict[str, Any] = {
        "nats": {"url": nats_server.url},
        "receiver": {"file_roots": str(tmp_path), "listen": "127.0.0.1:0-65535"},
    }
    config.write_text(json.dumps(settings))
    done = CliRunner().invoke(app, ["check", str(path), "--config", str(config), "-o", "json"])
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    problems = [(one["name"], one["problem"]) for one in found]
    assert [name for name, problem in problems if not problem] == [
        "source file", "source http", "source inMemory", "sink file", "sink http 1", "sink http 2",
        "store rdbms",
    ]  # fmt: skip
    failing = ["sink http", "sink file", "store rdbms"]
    assert [name for name, problem in problems if problem] == failing
    assert "is not open to connectors" in problems[-3][1]
    assert (found[-2]["stream"], found[-1]["stream"]) == ("Kept", "Lost")
    assert 'there is no data source "SHOP"' in problems[-1][1]
    assert found[0]["sample"] == [{"k": "a", "n": 1}]
    assert len(found[0]["refused"]) == 1
    assert (tmp_path / "out.csv").read_text() == "kept\n"
    shown = CliRunner().invoke(app, ["check", str(path), "--config", str(config)])
    assert "1 of 2 can be read" in shown.output


@pytest.mark.parametrize(("text", "status"), [("good", 0), ("bad", 1)])
def test_a_cluster_is_asked_unless_this_machine_is_meant(
    tmp_path: Path, text: str, status: int
) -> None:
    path = tmp_path / "app.siddhi"
    path.write_text(text)

    async def scene() -> Result:
        async with served(FakeService(), OPEN) as api:
            given = ["check", str(path), "--server", api.url]
            return await asyncio.to_thread(lambda: CliRunner().invoke(app, given))

    done = asyncio.run(scene())
    assert done.exit_code == status, done.output
    assert "w1" in done.output
    assert ("can't be opened" in done.output) == bool(status)
    # The text is no app, which this machine finds out by itself.
    local = CliRunner().invoke(app, ["check", str(path), "--local"])
    assert local.exit_code == 1
    # Not by a worker's name, which may be a part of the file's path.
    assert "expected" in local.output
    assert "expected" not in done.output


def test_servers_of_others_that_do_not_answer_are_named(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    path, config = tmp_path / "app.siddhi", tmp_path / "mesh.yaml"
    path.write_text("""@App:name('Fan') define stream S (k string);
    @sink(type='nats', server.urls='nats://ann:hunter2@127.0.0.1:1, 127.0.0.1:2',
          destination='a.{{k}}', @map(type='json'))
    define stream T (k string); from S select k insert into T;""")
    receiver = {"egress": "127.0.0.1:1-65535"}
    config.write_text(json.dumps({"nats": {"url": nats_server.url}, "receiver": receiver}))
    done = CliRunner().invoke(app, ["check", str(path), "--config", str(config), "-o", "json"])
    assert done.exit_code == 1, done.output
    (found,) = json.loads(done.stdout)
    assert found["problem"].startswith("NATS at nats://127.0.0.1:1, 127.0.0.1:2 can't be reached: ")
    assert "hunter2" not in done.output


def test_an_app_that_is_refused_is_shown_with_its_line(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    path, config = tmp_path / "app.siddhi", tmp_path / "mesh.yaml"
    path.write_text("define stream S (k string);\nfrom S selct k insert into T;\n")
    config.write_text(json.dumps({"nats": {"url": nats_server.url}}))
    done = CliRunner().invoke(app, ["check", str(path), "--config", str(config)])
    assert (done.exit_code, "MESH-L104" in done.output) == (1, True)
    assert "2 | from S selct k insert into T;" in done.output
    gone = CliRunner().invoke(app, ["check", str(tmp_path / "gone.siddhi"), "--local"])
    assert (gone.exit_code, "MESH-U120" in gone.output) == (1, True)
