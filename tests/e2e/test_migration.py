"""The page of migrations on a mesh: three apps beside what the original emitted, and a switch."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import aiomqtt
import httpx
import pytest

from mesh.jetstream.server import free_port
from mesh.operators import precompile
from tests.support.pages import passages
from tests.support.paths import ROOT
from tests.support.planted import address
from tests.support.scenes import viewing
from tools.cluster import MeshCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tools.cluster import MeshClusterView

pytestmark = [
    pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.thorough,
    pytest.mark.timeout(500),
]  # fmt: skip

CASES = ROOT / "tests" / "cases" / "migrate" / "two_nodes.txt"


@dataclass
class Section:
    """The blocks of the page from "Move a cluster" on, in order."""

    blocks: list[str] = field(default_factory=list)

    @classmethod
    def of_the_page(cls) -> Section:
        page = ROOT / "docs" / "migrate.md"
        before = page.read_text().split("## Move a cluster")[0].count("\n")
        return cls([one.text for one in passages(page) if one.line > before])

    def one(self, words: str) -> str:
        """The only block that has ``words``."""
        (found,) = [one for one in self.blocks if words in one]
        return found


def recorded() -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Events by app, stream, and "in" or "out"."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    rows: list[dict[str, Any]] = []
    for line in CASES.read_text().splitlines():
        if line.startswith("{"):
            rows.append(json.loads(line))
        elif line and not line.startswith("#"):
            app, stream, way = line.split()
            rows = found.setdefault((app, stream, way), [])
    return found


@contextmanager
def desk() -> Iterator[tuple[str, list[Any]]]:
    """The receiver of alarms: its host and port, and what it got."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Person:
    """Runs the commands of the page in a directory."""

    def __init__(self, directory: Path, section: Section, desk_at: str) -> None:
        self.directory, self.section = directory, section
        self.server = ""
        #: By place of the page, that of the test.
        self.places = {
            "desk:9090": desk_at,
            "0.0.0.0:8281": f"127.0.0.1:{free_port()}",
            "0.0.0.0:8282": f"127.0.0.1:{free_port()}",
        }

    def run(self, script: str) -> str:
        """The output of commands; each has to end well."""
        command = f'mesh() {{ "{sys.executable}" -m mesh.cli "$@"; }}; set -e\n{script}'
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.directory, capture_output=True, text=True,
            timeout=300, check=False,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "200",
                 "HOME": str(self.directory), "MESH_SERVER": self.server},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def write(self, path: str, text: str) -> None:
        for here, there in self.places.items():
            text = text.replace(here, there)
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def migrate(self) -> None:
        """Steps 1 and 2 of the page, as far as they need no mesh."""
        names = {"Cooling": "cooling", "Stock": "stock", "Doors": "doors"}
        for app, name in names.items():
            self.write(f"old/{name}.siddhi", self.section.one(f"@App:name('{app}')"))
        self.write("old/conf/deployment.yaml", self.section.one("wso2.carbon:"))
        shown = self.run(self.section.one("mesh migrate old --write new"))
        assert self.section.one("old/stock.siddhi: deployable after changes") in shown
        sources = self.directory / "new" / "conf" / "sources.yaml"
        other = f"url: jdbc:sqlite:{self.directory / 'trial.db'}"
        sources.write_text(re.sub(r"url: \S+", other, sources.read_text()))
        self.write("trial/old.siddhi", self.section.one("@App:name('Old')"))


async def keep_old_outputs(port: int, sink: str) -> None:
    """Publish what the original emitted as its sink does: by MQTT, in its JSON."""
    topic = re.search(r"topic='(.+?)/Cooling/Warm'", sink)
    assert topic is not None
    async with aiomqtt.Client("127.0.0.1", port, identifier="cooling") as client:
        for (app, stream, way), rows in recorded().items():
            for row in rows if way == "out" else ():
                payload = json.dumps({"event": row})
                await client.publish(f"{topic[1]}/{app}/{stream}", payload, qos=1)


async def produce(view: MeshClusterView, person: Person) -> None:
    """Give the apps of the mesh the inputs of the original."""
    urls = {
        "Temperatures": f"http://{person.places['0.0.0.0:8281']}/rooms",
        "Passages": f"http://{person.places['0.0.0.0:8282']}/doors",
    }
    async with httpx.AsyncClient(timeout=30) as client:
        for (app, stream, way), rows in recorded().items():
            for row in rows if way == "in" else ():
                if stream in urls:
                    answer = await client.post(urls[stream], json={"event": row})
                    assert answer.status_code == 200, answer.text
                else:
                    await view.js.publish(f"mesh.{app}.{stream}", json.dumps(row).encode())


async def compare(view: MeshClusterView, person: Person) -> None:
    """Step 4: each command shows what the page does."""
    section = person.section
    shown = await asyncio.to_thread(person.run, section.one("mesh compare Cooling Old"))
    assert shown == section.one("Warm: 7 same") + "\n"
    shown = await asyncio.to_thread(person.run, section.one("mesh compare Stock Old"))
    assert shown == section.one("Shortages: 4 same") + "\n"

    async def levels() -> str | None:
        # A busy worker does not answer in time; the hint is to ask again.
        query = f"({section.one('mesh query Stock')} 2>&1) || true"
        shown = await asyncio.to_thread(person.run, query)
        return None if "MESH-A503" in shown else shown

    shown = await view.until("the table", levels)
    rows = [line.split() for line in shown.splitlines()]
    items = ("bolt", "nut", "washer")
    assert [row for row in rows if row and row[0] in items] == [
        ["bolt", "37"], ["nut", "8"], ["washer", "9"],
    ], shown  # fmt: skip


async def switch(view: MeshClusterView, person: Person, got: list[Any]) -> None:
    """Step 5, and back: what is emitted is sent while the new app has its sink."""
    url = f"http://{person.places['0.0.0.0:8281']}/rooms"
    hot = {"room": "north", "celsius": 30.0}

    async def warm(count: int) -> None:
        async with httpx.AsyncClient(timeout=30) as client:
            assert (await client.post(url, json={"event": hot})).status_code == 200

        async def is_there() -> bool:
            return await view.count("mesh-Cooling-Warm", "mesh.Cooling.Warm") >= count

        await view.until(f"row {count} of Warm", is_there)

    await asyncio.to_thread(person.run, person.section.one("mesh deploy new/cooling.siddhi"))
    await view.until_running("Cooling")
    await warm(8)
    await view.until("the alarm", lambda: len(got) == 1)
    # Of 10, 6 and 30: the window continues where it was.
    assert got[0]["event"] == {"room": "north", "mean": pytest.approx(46 / 3)}
    (back,) = [one for one in person.section.blocks if one == "mesh deploy trial/cooling.siddhi"]
    await asyncio.to_thread(person.run, back)
    await view.until_running("Cooling")
    await warm(9)
    assert len(got) == 1


def test_three_apps_are_moved_as_the_page_says(tmp_path: Path) -> None:
    section, mqtt = Section.of_the_page(), free_port()
    (tmp_path / "nats.conf").write_text(f"server_name: one\nmqtt {{ port: {mqtt} }}\n")

    async def scene(cluster: MeshCluster, person: Person, got: list[Any]) -> None:
        async with viewing(cluster, "w1") as view:
            person.server = await address(view)
            for name in ("desk_password", "stock_password"):
                await asyncio.to_thread(person.run, f"echo hunter2 | mesh secret set {name}")
            await view.js.add_stream(name="OLD", subjects=["old.>"])
            await keep_old_outputs(mqtt, section.one("@sink(type='mqtt'"))
            await asyncio.to_thread(person.run, section.one("sed '/^@sink/d'"))
            for app in ("Old", "Cooling", "Stock", "Doors"):
                await view.until_running(app)
            await produce(view, person)
            await compare(view, person)
            await switch(view, person, got)
            await asyncio.to_thread(person.run, "mesh undeploy Old")

    precompile.compile_once()
    with desk() as (at, got):
        person = Person(tmp_path, section, at)
        person.migrate()
        conf = tmp_path / "new" / "conf"
        key = tmp_path / "secrets.key"
        key.write_text(base64.b64encode(bytes(range(32))).decode())
        key.chmod(0o600)
        cluster = MeshCluster(
            tmp_path / "mesh", 1, arguments=["-c", str(tmp_path / "nats.conf")],
            environment={
                "MESH_RECEIVER_REFS_FILE": str(conf / "refs.yaml"),
                "MESH_STORES_SOURCES_FILE": str(conf / "sources.yaml"),
                "MESH_SECRETS_KEY_FILE": str(key),
                "MESH_RECEIVER_EGRESS": "127.0.0.1:0-65535",
            },
        )  # fmt: skip
        try:
            asyncio.run(scene(cluster, person, got))
        finally:
            cluster.stop()
