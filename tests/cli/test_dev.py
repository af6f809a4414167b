"""``mesh dev`` as a person runs it: other commands find it, and nothing of it outlives it.

`mesh init` and `mesh dev --watch`: a new project, its test, and its app at each save.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import nats
import psutil
import pytest
from typer.testing import CliRunner

from mesh.cli import local
from mesh.cli.commands import app
from mesh.cli.dev import changed, deploy_file, removed, texts_of
from mesh.client import ClientContext
from mesh.client.context import described
from mesh.errors import MeshError
from mesh.jetstream.connection import connect
from mesh.operators import precompile
from mesh.settings import NatsSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(500)]

#: A session takes more than a minute to start on a busy machine.
DEADLINE_S = 240.0
#: Spark's JVM ends when its session has, and a query's planner when the JVM has.
GONE_S = 30.0
#: Passes all events of one stream on; nothing in it needs more than a stateless group.
APP = """@App:name('Shop')
define stream Orders (item string, count int);
@info(name='big') from Orders[count > 10] select item, count insert into BigOrders;
"""


@dataclass
class Dev:
    """A running ``mesh dev`` with its own directories."""

    process: subprocess.Popen[bytes]
    directory: Path
    environment: dict[str, str]
    #: Standard error of the last other command.
    warned: str = ""

    def wait_for(self, words: str) -> str:
        """Wait for a line with ``words``; the output up to it."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        said = ""
        deadline_s = time.monotonic() + DEADLINE_S
        while words not in said and time.monotonic() < deadline_s:
            ready, _, _ = select.select([descriptor], [], [], 1.0)
            if ready:
                chunk = os.read(descriptor, 65536).decode()
                assert chunk, f"it ended: {said}"
                said += chunk
        assert words in said
        return said

    def mesh(self, *arguments: str, input: str = "", fails: bool = False) -> str:
        """The output of another command, run elsewhere, that has to end well, or has not to."""
        said = subprocess.run(
            [sys.executable, "-m", "mesh.cli", *arguments],
            cwd=self.directory, env=self.environment, input=input, capture_output=True,
            text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        assert (said.returncode == 1) == fails, said.stderr + said.stdout
        assert said.returncode in (0, 1), said.stderr + said.stdout
        self.warned = said.stderr
        return said.stdout

    def descendants(self) -> list[psutil.Process]:
        """All descendants of a process."""
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    yield from running_dev(tmp_path)


def running_dev(tmp_path: Path, *options: str) -> Iterator[Dev]:
    """``mesh dev`` with one worker, which finds its loops compiled, as after `make`."""
    precompile.compile_once()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MESH_")}
    environment |= {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "COLUMNS": "200",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "mesh.cli", "dev", "--data", str(tmp_path / "data"),
         "--workers", "1", "--nats-port", "0", "--api-port", "0", *options],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    started = Dev(process, tmp_path, environment)
    try:
        yield started
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            if process.stdout is not None:
                process.stdout.close()


def gone(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that are still there after ``GONE_S``."""
    _, alive = psutil.wait_procs(processes, timeout=GONE_S)
    return [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def whole_tree(dev: Dev) -> list[psutil.Process]:
    """The processes of a cluster whose worker is ready, Spark's among them."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        nodes = json.loads(dev.mesh("nodes", "--output", "json"))
        if any(n["role"] == "worker" and n["ready"] for n in nodes):
            found = dev.descendants()
            assert any("java" in name_of(p) for p in found)
            assert any("nats-server" in name_of(p) for p in found)
            return found
    raise AssertionError("the worker is not ready")


def check_nats(said: str) -> None:
    """NATS has a publisher and a reader, whose URLs are printed, and refuses everybody else."""
    urls = dict(re.findall(r"NATS (\w+) +(\S+)", said))
    assert set(urls) == {"publisher", "reader"}
    parts = urlsplit(urls["publisher"])
    assert parts.hostname == "127.0.0.1"

    async def scene() -> None:
        with pytest.raises(MeshError, match="N110"):
            await connect(NatsSettings(f"nats://127.0.0.1:{parts.port}"), "nobody")
        refused: asyncio.Queue[Exception] = asyncio.Queue()
        for url in urls.values():
            client = await nats.connect(url, error_cb=refused.put)
            for subject in ("mesh._marker.x", "$KV.mesh_apps.app.Shop", "$JS.API.STREAM.NAMES"):
                await client.publish(subject, b"")
                said = str(await asyncio.wait_for(refused.get(), DEADLINE_S)).lower()
                assert "permissions violation for publish" in said
                assert subject.lower() in said
            await client.close()

    asyncio.run(scene())


def connections_of(process: psutil.Process) -> list[Any]:
    """None of a process that has ended: the JVM starts short ones."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.net_connections("inet")
    return []


def name_of(process: psutil.Process) -> str:
    """As ``connections_of``."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def check_listeners(processes: list[psutil.Process]) -> None:
    """Nothing listens for other machines."""
    found = [
        connection.laddr.ip.removeprefix("::ffff:")
        for process in processes
        for connection in connections_of(process)
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(found) > 2
    assert all(ip_address(one).is_loopback for one in found), found


def test_other_commands_find_it_and_an_app_goes_through_until_ctrl_c(dev: Dev) -> None:
    path = dev.directory / "shop.siddhi"
    path.write_text(APP)
    # At once: neither the manager nor a session is up.
    said = dev.wait_for("password").split("The manager")[0]
    check_nats(said)
    assert dev.mesh("context", "show") == said
    done = json.loads(dev.mesh("deploy", str(path), "--timeout", "200", "-o", "json"))
    assert done["running"]
    # The manager and the session need seconds, as a rule longer than this command takes to ask for
    # them: then it printed what it waits for.
    assert all(line.endswith(") ...") for line in dev.warned.splitlines())
    assert "The manager is up" in dev.wait_for("The manager is up")
    # Of several files one that is at fault keeps none of the others.
    more = ["missing.siddhi", str(path), "--timeout", "100", "-o", "json"]
    missing, again = json.loads(dev.mesh("deploy", *more, fails=True))
    assert missing["error"]["code"] == "MESH-U120"
    assert again["running"]
    # A heartbeat that came late shows it as starting for a moment.
    deadline_s = time.monotonic() + DEADLINE_S
    states: list[str] = []
    while states != ["running"] and time.monotonic() < deadline_s:
        states = [a["state"] for a in json.loads(dev.mesh("apps", "-o", "json"))]
    assert states == ["running"]

    rows = "item,count\nnut,5\nbolt,50\nnail,500\n"
    said = dev.mesh("publish", "Shop", "Orders", "--csv", input=rows)
    assert said == "3 events published to mesh.Shop.Orders\n"
    tapped = dev.mesh("tap", "Shop", "BigOrders", "--from-start", "--count", "2")
    assert [json.loads(line) for line in tapped.splitlines()] == [
        {"item": "bolt", "count": 50},
        {"item": "nail", "count": 500},
    ]

    dev.mesh("publish", "Shop", "Orders", input="this is no JSON\n")
    deadline_s = time.monotonic() + DEADLINE_S
    errors: list[dict[str, object]] = []
    while not errors and time.monotonic() < deadline_s:
        errors = json.loads(dev.mesh("errors", "Shop", "-o", "json"))
    assert errors[0]["stream"] == "Orders"
    assert errors[0]["reason"]
    mended = ["--event", '{"item": "screw", "count": 70}']
    said = dev.mesh("replay", "Shop", str(errors[0]["id"]), *mended)
    assert said == "1 failed event replayed, 0 left\n"
    tapped = dev.mesh("tap", "Shop", "BigOrders", "--from-start", "--count", "3")
    assert json.loads(tapped.splitlines()[2]) == {"item": "screw", "count": 70}
    assert "Shop" in dev.mesh("status", "Shop")
    dev.mesh("undeploy", "Shop")

    # Ctrl-C ends it in order, and nothing is left of it.
    processes = whole_tree(dev)
    check_listeners(processes)
    assert (dev.directory / "config" / "mesh" / "context.json").exists()
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(30) == 0
    assert gone(processes) == []
    assert not (dev.directory / "config" / "mesh" / "context.json").exists()


@pytest.mark.extended
def test_kill_9_leaves_nothing_behind(dev: Dev) -> None:
    dev.wait_for("The manager is up")
    processes = whole_tree(dev)
    dev.process.kill()
    dev.process.wait(10)
    assert gone(processes) == []


@pytest.mark.slow
def test_a_later_start_has_the_ports_passwords_and_certificate_of_the_first(tmp_path: Path) -> None:
    def begun(port: int | None) -> tuple[tuple[str, ...], list[str], bytes]:
        """The notes of a start, the lines that it prints, the certificate."""
        cluster = local.start(local.LocalPlan(tmp_path, 0, Settings(), port, port))
        try:
            shown = list(described(cluster.context))
            return cluster.notes, shown, (tmp_path / "api.crt").read_bytes()
        finally:
            cluster.stop()

    first = begun(0)
    assert first[0] == ()
    assert begun(None) == first
    port = int(re.findall(r"publisher:\S+:(\d+)", "\n".join(first[1]))[0])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        notes, shown, _ = begun(None)
        assert notes == (f"port {port} of NATS is in use; this start has another one",)
        assert not [line for line in shown if line.endswith(f":{port}")]
    assert begun(None) == first


EDITS = 10
PASS = """@App:name('Shop')
define stream Orders (n int);
@info(name='pass') from Orders select n, {edit} as edit insert into Passed;
"""


@pytest.mark.slow
def test_a_new_project_passes_its_test(alone: Path) -> None:
    assert CliRunner().invoke(app, ["init", "shop"]).exit_code == 0
    names = {path.name for path in (alone / "shop").iterdir()}
    assert names == {
        "README.md", "compose.override.yaml", "shop.events.jsonl", "shop.expected.jsonl",
        "shop.siddhi",
    }  # fmt: skip
    assert "@App:name('Shop')" in (alone / "shop" / "shop.siddhi").read_text()
    assert "mesh tap Shop Totals" in (alone / "shop" / "README.md").read_text()
    said = CliRunner().invoke(app, ["test", "shop/shop.siddhi"])
    assert (said.exit_code, "as expected" in said.stdout) == (0, True)
    assert CliRunner().invoke(app, ["format", "--check", "shop/shop.siddhi"]).exit_code == 0

    again = CliRunner().invoke(app, ["init", "shop"])
    assert again.exit_code == 1
    assert "MESH-U163" in again.stderr
    for name in ("a/b", "..", "a.b", ""):
        assert CliRunner().invoke(app, ["init", name]).exit_code == 1


def test_files_that_are_new_or_changed_are_deployed_and_others_are_not(tmp_path: Path) -> None:
    one, two = tmp_path / "one.siddhi", tmp_path / "two.siddhi"
    one.write_text("a")
    two.write_text("b")
    (tmp_path / "bytes.siddhi").write_bytes(b"\xff\xfe")
    (tmp_path / "other.txt").write_text("c")
    before = texts_of(tmp_path)
    assert changed({}, before) == [one, two]
    one.write_text("a")
    two.write_text("d")
    assert changed(before, texts_of(tmp_path)) == [two]
    one.unlink()
    assert removed(before, texts_of(tmp_path)) == [one]


def test_every_error_is_shown_with_its_line_and_nothing_is_sent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "@App:name('A')\ndefine stream S (a int);\nfrom S select b insert into T;\n"
    path = tmp_path / "a.siddhi"
    said: list[str] = []
    # A context without a server: a request would fail with another error.
    assert not deploy_file(ClientContext(), path, text, said.append)
    shown = capfd.readouterr().err
    assert "a.siddhi:3:15" in shown
    assert "^" in shown
    assert said == ["a.siddhi is not deployed; it is tried again when you save it"]


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Dev]:
    yield from running_dev(tmp_path, "--watch")


@pytest.mark.extended
@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_ten_edits_under_load_lose_and_double_nothing(watching: Dev) -> None:
    path = watching.directory / "shop.siddhi"
    # With a session, which starts slowly on a busy machine, the app runs soon.
    watching.wait_for("The manager is up")
    whole_tree(watching)
    path.write_text(PASS.format(edit=0))
    watching.wait_for('app "Shop" runs')

    publishing = subprocess.Popen(
        [sys.executable, "-m", "mesh.cli", "publish", "Shop", "Orders"],
        cwd=watching.directory, env=watching.environment, stdin=subprocess.PIPE,
    )  # fmt: skip
    assert publishing.stdin is not None
    ended = threading.Event()
    count = 0

    def publish() -> None:
        nonlocal count
        assert publishing.stdin is not None
        # 200 a second until the edits are done.
        while not ended.wait(0.005):
            os.write(publishing.stdin.fileno(), f'{{"n": {count}}}\n'.encode())
            count += 1

    writer = threading.Thread(target=publish)
    writer.start()
    try:
        for edit in range(1, EDITS + 1):
            path.write_text(PASS.format(edit=f"b{edit}"))
            watching.wait_for("is not deployed")
            path.write_text(PASS.format(edit=edit))
            assert 'app "Shop" runs' in watching.wait_for("group default is")
    finally:
        ended.set()
        writer.join()
        publishing.stdin.close()
        assert publishing.wait(60) == 0
    assert count > 100
    wanted = ["tap", "Shop", "Passed", "--from-start", "--count", str(count)]
    rows = [json.loads(line) for line in watching.mesh(*wanted).splitlines()]
    assert [row["n"] for row in rows] == list(range(count))
    edits = [row["edit"] for row in rows]
    assert edits == sorted(edits)
    assert edits[-1] == EDITS
    # The report on the last run follows within about a second.
    behind = 1
    while behind:
        (instance,) = json.loads(watching.mesh("status", "Shop", "-o", "json"))["instances"]
        behind = instance["behind"]
