"""The example of docs/connectors.md: a connector of another package, found by its entry point."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect import registry
from mesh.connect.spec import Role
from mesh.model.cluster import Assignment, InstanceState
from mesh.receiver import host
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from mesh.worker.protocol import StartInstance, StopInstance, to_line
from tests.support.connectors import staged
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

APP = """@App:name('{app}')
@source(type='words', path='{directory}/in', @map(type='csv')) define stream S (word string);
@sink(type='words', path='{directory}/out', @map(type='text', @payload('{{word}}')))
define stream T (word string);
from S select word insert into T;
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example as an installed package."""
    site = tmp_path / "site"
    about = site / "mesh_words-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mesh-words\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[mesh.connectors]\nwords = mesh_words\n")
    (site / "mesh_words.py").write_text((ROOT / "examples" / "mesh_words.py").read_text())
    monkeypatch.syspath_prepend(str(site))
    registry.specs.cache_clear()
    yield site
    registry.specs.cache_clear()
    sys.modules.pop("mesh_words", None)


async def test_an_app_uses_it(nats_server: NatsServer, tmp_path: Path, installed: Path) -> None:
    text = APP.replace("{app}", "Words").replace("{directory}", str(tmp_path))
    async with staged(nats_server, text) as stage:
        (tmp_path / "in").write_text("one two three")
        stage.start("receiver-S")

        async def read() -> bool:
            return len(await stage.events("S")) == 3

        await stage.until("3 words", read)
        await stage.publish("T", {"word": "four"}, {"word": ""}, {"word": "five"})
        stage.start("sink-T")
        (entry,) = await stage.until("the refused one", stage.errors)
        assert entry["reason"] == "an empty word"
        out = tmp_path / "out"
        await stage.until("2 words", lambda: out.read_text().split() == ["four", "five"])


def reading(directory: Path) -> ConnectorScenario:
    """Three words are read."""

    async def write(stage: Stage) -> None:
        own = directory / f"run{stage.spec.name.removeprefix('Run')}"
        (own / "in").write_text("one two three")

    async def stored(stage: Stage) -> Any:
        return [event["word"] for event in await stage.events("S")]

    return ConnectorScenario(APP, "receiver-S", write, stored, lambda found: len(found) >= 3)


@pytest.mark.slow
async def test_its_source_is_exact(
    nats_server: NatsServer, tmp_path: Path, installed: Path
) -> None:
    assert await conform(nats_server.url, reading(tmp_path), tmp_path)


@pytest.mark.slow
async def test_the_kit_finds_a_source_that_forgets_its_position(
    nats_server: NatsServer, tmp_path: Path, installed: Path
) -> None:
    module = installed / "mesh_words.py"
    exact = module.read_text()
    module.write_text(exact.replace('(position or {"word": 0})["word"]', "0"))
    assert module.read_text() != exact
    with pytest.raises(AssertionError, match="killed"):
        await conform(nats_server.url, reading(tmp_path), tmp_path)


def test_the_command_shows_it(installed: Path) -> None:
    call = [sys.executable, "-m", "mesh.cli", "connectors", "words"]
    shown = subprocess.check_output(call, text=True, env={"PYTHONPATH": ":".join(sys.path)})
    assert "Reads a text word by word." in shown
    assert registry.find(Role.SINK, "words") is not None


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "connectors.md").read_text("utf-8")
    lines = (ROOT / "examples" / "mesh_words.py").read_text("utf-8").splitlines()
    assert len(lines) <= 66
    shown = "\n".join(lines[7:])
    assert shown.strip() in page


async def test_one_that_can_not_be_imported_reports_it(
    nats_server: NatsServer, tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object) -> None:
        raise ImportError("no module of its name")

    text = APP.replace("{app}", "Words").replace("{directory}", str(tmp_path))
    async with staged(nats_server, text) as stage:
        monkeypatch.setattr(host, "instance_of", wrong)
        one = host.Host(stage.environment)
        group = stage.spec.group("sink-T")
        assert group is not None
        own = Assignment(group.instances[0], "Words", group.name, 1, "inc", "w1", 1, 1)
        one.handle(to_line(StartInstance(own, group)))

        def told(state: InstanceState) -> Any:
            return [r for r in stage.reports if r.state is state]

        (report, *_) = await stage.until("it", lambda: told(InstanceState.RETRYING))
        assert "no module of its name" in report.error
        one.handle(to_line(StopInstance(own.instance, 1)))
        await stage.until("its end", lambda: told(InstanceState.STOPPED))
        await one.stop_all()
