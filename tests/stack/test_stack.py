"""The development stack in containers: driven from the host, under load, with containers killed.

They run by `make test ARGS='-m docker'`, where a Docker engine and the images are.  The base of the
images is the variable `MESH_IMAGE_BASE`, as for `make images`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from nats.errors import Error as NatsError

from mesh.client import context
from mesh.jetstream.connection import TlsClient, close, connect
from mesh.jetstream.server import free_ports
from mesh.model import names
from tests.support.machines import base_image
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from nats.aio.client import Client

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]

TARGETS = ("manager", "worker", "nats")
#: What `make up` and the commands of docs/compose.md use of a checkout.
CHECKOUT = ("Makefile", "compose", "conf", "connectors", "examples", "pyproject.toml")
#: Time for all to be healthy and for all output, seconds; a busy machine needs long.
UP_S = 600
OUT_S = 240
APP = """@App:name('Counted')
define stream Numbers (n long);
@info(name='pass') @dist(execGroup='pass', parallel='2')
from Numbers[n >= 0] select n insert into Passed;
@info(name='sums') @dist(execGroup='sums')
from Numbers select n, count() as seen, sum(n) as total insert into Sums;
"""
#: Events a second, and the longest time to an output, 99 of 100.
RATE = 200
P99_S = 1.0
#: Sends the processes of a worker that run instances a signal, by its name.
SIGNAL = """import os, pathlib, signal, sys
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    if b"\\0-m\\0mesh.spark.daemon\\0" in path.read_bytes():
        os.kill(int(path.parent.name), signal.Signals[sys.argv[1]])
"""


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the client, which has to exist."""
    return subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def reason_to_skip(*targets: str) -> str | None:
    """The reason why no stack of the images can be started here."""
    if shutil.which("docker") is None or docker("info").returncode:
        return "there is no Docker engine"
    for target in targets or TARGETS:
        if docker("image", "inspect", f"mesh-{target}:dev").returncode:
            return f"image mesh-{target}:dev is not there: make images PROFILES=idp"
    return None


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)


@dataclass
class Stack:
    """A stack with a project name, ports and a folder of its own."""

    folder: Path
    project: str
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ports = (
            "API_PORT",
            "API_PORT_2",
            "NATS_PORT",
            "NATS_PORT_2",
            "NATS_PORT_3",
            "RECEIVER_PORT",
            "IDP_PORT",
        )
        # docker-compose 1.29 is a Python program itself.
        left_out = ("MESH_", "PYTHON")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
        found = zip(ports, free_ports(len(ports)), strict=True)
        self.environment = kept | {f"MESH_{name}": str(port) for name, port in found}
        for name in CHECKOUT:
            (self.folder / name).symlink_to(ROOT / name)
        self.environment |= {
            "PWD": str(self.folder),
            "STACK_NAME": self.project,
            "MESH_HOST_UID": str(os.getuid()),
            "MESH_HOST_GID": str(os.getgid()),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }
        # The paths of this checkout are for our program only: docker-compose 1.29 is in Python too.
        program = self.folder / "bin" / "mesh"
        program.parent.mkdir()
        paths = shlex.quote(os.pathsep.join(sys.path))
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH={paths} exec {shlex.quote(sys.executable)} -m mesh.cli "$@"\n'
        )
        program.chmod(0o755)
        self.environment["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"

    def shell(self, script: str, limit_s: float = UP_S) -> str:
        """The output of commands of a page, in a folder that is like a checkout."""
        said = subprocess.run(
            ["bash", "-euc", script], cwd=self.folder, env=self.environment,
            capture_output=True, text=True, timeout=limit_s, check=False,
        )  # fmt: skip
        assert said.returncode == 0, said.stderr + said.stdout
        return said.stdout

    def with_ports(self, script: str) -> str:
        """Commands of a page, which has the port of the API that is the default."""
        return script.replace("localhost:9543", f"localhost:{self.environment['MESH_API_PORT']}")

    def mesh(self, *arguments: str) -> str:
        return self.shell(shlex.join(["mesh", *arguments]), OUT_S)

    def logs_have(self, wanted: set[str]) -> bool:
        """Whether ``make logs`` shows lines of all these services."""
        with subprocess.Popen(
            ["timeout", str(OUT_S), "make", "logs"], cwd=self.folder, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        ) as run:  # fmt: skip
            assert run.stdout is not None
            for line in run.stdout:
                wanted = {name for name in wanted if name not in line.partition("|")[0]}
                if not wanted:
                    break
            os.killpg(run.pid, signal.SIGKILL)
        return not wanted

    def compose(self, *arguments: str) -> str:
        v2 = docker("compose", "version").returncode == 0
        program = ["docker", "compose"] if v2 else ["docker-compose"]
        said = subprocess.run(
            [*program, "-p", self.project, "-f", str(ROOT / "compose" / "dev.yaml"), *arguments],
            cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=UP_S, check=False,
        )  # fmt: skip
        assert said.returncode == 0, said.stderr + said.stdout
        return said.stdout

    def container(self, service: str) -> str:
        return self.compose("ps", "-q", service).strip()

    def kill(self, service: str) -> str:
        name = self.container(service)
        assert docker("kill", name).returncode == 0
        return name

    def signal(self, worker: str, name: str) -> None:
        """Stop or continue the processes of a worker that run instances."""
        said = docker("exec", self.container(worker), "python3", "-c", SIGNAL, name)
        assert said.returncode == 0, said.stderr

    def values(self, *arguments: str) -> Any:
        return json.loads(self.mesh(*arguments, "-o", "json"))

    @property
    def nats_urls(self) -> list[str]:
        """URLs of the servers for the publisher."""
        stack = self.folder / ".mesh" / "stack"
        lines = (stack / "nats.env").read_text().splitlines()
        login = dict(line.split("=", 1) for line in lines)["NATS_URL"].rpartition("@")[0]
        found = json.loads((stack / "context.json").read_text())["nats"].split(",")
        return [f"{login}@{url.removeprefix('nats://')}" for url in found]

    def rows(self, stream: str, count: int) -> list[Any]:
        wanted = ("tap", "Counted", stream, "--from-start", "--count", str(count))
        deadline_s = time.monotonic() + OUT_S
        while True:
            try:
                return [json.loads(line) for line in self.mesh(*wanted).splitlines()]
            # NATS places the consumer on a server that was just killed, and does not answer.
            except AssertionError:
                if time.monotonic() > deadline_s:
                    raise
            except subprocess.TimeoutExpired as late:
                seen = len((late.stdout or b"").splitlines())
                found = f"{seen} of {count} rows of {stream}\n{self.state()}"
                raise AssertionError(found) from late

    def state(self) -> str:
        """Nodes, instances, containers and the last lines of every log, for a failure's report."""
        shown = [self.mesh("nodes"), self.mesh("status", "Counted"), self.compose("ps")]
        return "\n".join([*shown, self.compose("logs", "--no-color", "--tail", "80")])


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    found = Stack(tmp_path, f"meshtest{os.getpid()}")
    try:
        found.shell("make up")
        yield found
    finally:
        found.compose("down", "-v", "--timeout", "5")


@contextlib.asynccontextmanager
async def publisher(stack: Stack) -> AsyncIterator[Client]:
    """A client of the publisher's account, on any of the servers."""
    # nats-py's own client leaves the sockets of failed attempts open.
    client = TlsClient()
    options: dict[str, Any] = {
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.2,
        "tls": ssl.create_default_context(cafile=stack.folder / ".mesh" / "stack" / "nats.crt"),
    }
    await client.connect(stack.nats_urls, **options)
    try:
        yield client
    finally:
        await close(client)


@contextlib.asynccontextmanager
async def operator(stack: Stack) -> AsyncIterator[Client]:
    """A client as the commands of the host are one."""
    found = context.find({}, stack.folder / ".mesh" / "stack" / "context.json")
    client = await connect(found.nats_settings, "test of the stack")
    try:
        yield client
    finally:
        await close(client)


async def latencies_s(stack: Stack, first: int, count: int) -> list[float]:
    """Publish numbers at a rate; the time from each one to its row of each output."""
    sent_s: dict[int, float] = {}
    took_s: list[float] = []
    are_all = asyncio.Event()
    clock_s = time.monotonic

    async def came(message: Any) -> None:
        took_s.append(clock_s() - sent_s[json.loads(message.data)["n"]])
        if len(took_s) == 2 * count:
            are_all.set()

    async with publisher(stack) as source, operator(stack) as target:
        for stream in ("Passed", "Sums"):
            await target.subscribe(names.subject("Counted", stream), cb=came)
        await target.flush()
        begun_s = clock_s()
        for at, n in enumerate(range(first, first + count)):
            await asyncio.sleep(begun_s + at / RATE - clock_s())
            sent_s[n] = clock_s()
            await source.publish(names.subject("Counted", "Numbers"), b'{"n": %d}' % n)
        async with asyncio.timeout(OUT_S):
            await are_all.wait()
    return took_s


async def last_sequence(stack: Stack) -> int:
    """The last sequence of the input, by the server."""
    async with operator(stack) as client:
        info = await client.jetstream().stream_info(names.js_stream("Counted", "Numbers"))
    return int(info.state.last_seq)


def assert_waiting(stack: Stack, count: int) -> None:
    """The cluster comes to say that so many messages wait for the sums."""
    deadline_s = time.monotonic() + OUT_S
    while True:
        instances = stack.values("status", "Counted")["instances"]
        (found,) = (one["behind"] for one in instances if "-sums-" in one["instance"])
        if found == count:
            return
        assert time.monotonic() < deadline_s, f"{found} wait, and not {count}\n{stack.state()}"
        time.sleep(0.5)


async def publish(stack: Stack, first: int, count: int, kills: dict[int, str]) -> list[str]:
    """Publish numbers, each once although a server dies; kill a service at some of them."""
    subject = names.subject("Counted", "Numbers")
    killed = []
    async with publisher(stack) as client:
        js = client.jetstream(timeout=2)
        for n in range(first, first + count):
            if n in kills:
                killed.append(await asyncio.to_thread(stack.kill, kills[n]))
            deadline_s = time.monotonic() + OUT_S
            while True:
                try:
                    # The server drops a repetition of an id, so a lost answer doubles nothing.
                    headers = {"Nats-Msg-Id": str(n)}
                    await js.publish(subject, b'{"n": %d}' % n, headers=headers)
                    break
                except (NatsError, TimeoutError, OSError):
                    assert time.monotonic() < deadline_s, "NATS accepts nothing"
            await asyncio.sleep(0.01)
    return killed


def assert_exact(stack: Stack, count: int) -> None:
    """Every number is passed once, and the sums have seen each once, in order."""
    assert sorted(row["n"] for row in stack.rows("Passed", count)) == list(range(count))
    sums = stack.rows("Sums", count)
    assert [row["seen"] for row in sums] == list(range(1, count + 1))
    assert sums[-1]["total"] == count * (count - 1) // 2


def commands_of(section: str) -> list[str]:
    """The commands in a section of docs/compose.md, a line that goes on as one."""
    page = (ROOT / "docs" / "compose.md").read_text("utf-8")
    part = re.split(r"\n##+ ", page.partition(f"# {section}\n")[2])[0].replace("\\\n", "")
    return [line[4:] for line in part.splitlines() if line.startswith("    ")]


def follow_the_page(stack: Stack) -> None:
    """Run the commands of the example of docs/compose.md, word for word, but the build."""
    lines = commands_of("Example")
    left_out = ["make .venv/.installed", "make images", "make down", "MESH_HOST_UID"]
    # The one program that neither the images nor the package bring.
    if shutil.which("nats") is None:
        left_out.append("nats pub")
    done = [line for line in lines if not line.startswith(tuple(left_out))]
    assert len(done) == len(lines) - len(left_out) >= 7
    said = stack.shell(stack.with_ports("\n".join(done)))
    assert '{"customer":"ada","amount":120.0,"tier":"silver"}' in said
    assert '["Enrichment"]' in said


def test_it_is_used_from_the_host_and_exact_over_kills_and_over_down_and_up(stack: Stack) -> None:
    nodes = stack.values("nodes")
    assert sorted(n["id"] for n in nodes if n["ready"]) == ["m1", "m2", "r1", "w1", "w2", "w3"]
    follow_the_page(stack)
    assert stack.logs_have({"n1", "m1", "m2", "r1", "w1", "w2", "w3"})
    path = stack.folder / "counted.siddhi"
    path.write_text(APP)
    assert stack.values("deploy", str(path), "--timeout", "120")["running"]

    # A fault of the reader delays outputs in each period; a pause of the machine is in one.
    asyncio.run(latencies_s(stack, 0, 2 * RATE))
    p99_s = [
        float(np.quantile(asyncio.run(latencies_s(stack, period * RATE, RATE)), 0.99))
        for period in range(2, 5)
    ]
    assert min(p99_s) <= P99_S, p99_s

    # What waits is what the server has after what was read.
    instances = stack.values("status", "Counted")["instances"]
    (worker,) = (one["worker"] for one in instances if "-sums-" in one["instance"])
    stack.signal(worker, "SIGSTOP")
    asyncio.run(publish(stack, 5 * RATE, RATE, {}))
    last = asyncio.run(last_sequence(stack))
    assert last == 6 * RATE
    assert_waiting(stack, last - 5 * RATE)
    stack.signal(worker, "SIGCONT")
    assert_waiting(stack, 0)

    # A container of each kind: a worker with instances, the leader, and a NATS server.
    (leader,) = (n["id"] for n in stack.values("nodes") if n["leads"])
    kills = {1300: worker, 1600: "n1", 1900: leader}
    killed = asyncio.run(publish(stack, 6 * RATE, 1000, kills))
    assert len(killed) == len(kills)
    assert_exact(stack, 2200)

    # They are started again, and all ends and begins with the volumes of before.
    for name in killed:
        assert docker("start", name).returncode == 0
    stack.shell("make down")
    stack.shell("make up")
    asyncio.run(publish(stack, 2200, 300, {}))
    assert_exact(stack, 2500)


@pytest.mark.parametrize("target", [*TARGETS, "idp"])
def test_an_image_adds_at_most_what_the_page_says(target: str) -> None:
    page = (ROOT / "docs" / "compose.md").read_text("utf-8")
    row = re.search(rf"\| `mesh-{target}` \| ([\d,]+) MB \|", page)
    assert row is not None
    base = base_image()
    if (reason := reason_to_skip(target)) is not None:
        pytest.skip(reason)
    if docker("image", "inspect", base).returncode:
        pytest.skip(f"base {base} is not there; MESH_IMAGE_BASE names it")
    sizes = [
        int(docker("image", "inspect", "-f", "{{.Size}}", name).stdout)
        for name in (f"mesh-{target}:dev", base)
    ]
    assert (sizes[0] - sizes[1]) / 1e6 <= int(row[1].replace(",", ""))


def test_a_worker_has_its_archive_of_classes_and_compiled_loops() -> None:
    code = (
        "from mesh.spark import class_archive; from mesh.operators import loop_cache;"
        "print(class_archive.default_path().exists(), any(loop_cache.CACHE.iterdir()))"
    )
    run = ("run", "--rm", "--read-only", "--tmpfs", "/tmp", "--entrypoint", "python3")
    assert docker(*run, "mesh-worker:dev", "-c", code).stdout == "True True\n"


def test_a_manager_has_no_spark_and_is_not_root() -> None:
    named = ("pyspark", "numba", "pandas")
    code = f"import importlib.util as u; print([m for m in {named} if u.find_spec(m)])"
    run = ("run", "--rm", "--read-only", "--entrypoint", "python3", "mesh-manager:dev", "-c")
    assert docker(*run, code).stdout == "[]\n"
    assert docker(*run, "import os; print(os.getuid())").stdout == "10001\n"
    assert docker("run", "--rm", "--read-only", "mesh-manager:dev", "--version").returncode == 0
