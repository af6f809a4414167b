"""Settings of a session on a Spark cluster: what is refused, and what Spark is given."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.settings import NatsSettings, SparkSettings
from mesh.spark import cluster

if TYPE_CHECKING:
    from pathlib import Path

FAR = NatsSettings(url="nats://n1:4222,nats://n2:4222")
LOGIN = NatsSettings(url="nats://n1:4222", user="worker", password="pass")
MASTER = "spark://spark1:7077"
ENCRYPTED = "spark.authenticate true\nspark.network.crypto.enabled=true\n"


def conf_file(directory: Path, text: str) -> str:
    path = directory / "spark.conf"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_a_local_session_has_no_demands(master: str) -> None:
    assert cluster.check(SparkSettings(master=master), LOGIN) == {}


@pytest.mark.parametrize("master", [MASTER, "yarn", "k8s://https://k1:6443"])
def test_clusters_of_these_kinds_may_be_used(master: str) -> None:
    assert cluster.check(SparkSettings(master=master), FAR) == {}


@pytest.mark.parametrize(
    ("master", "text", "reason"),
    [
        ("sc://spark1:15002", "", "Spark Connect"),
        ("mesos://m1:5050", "", "no master of Spark"),
        (MASTER, "spark.speculation true\n", "same instances"),
        (MASTER, "spark.dynamicAllocation.enabled  true\n", "no load"),
        (MASTER, "spark.submit.deployMode = cluster\n", "is the driver"),
    ],
)
def test_what_can_not_work_is_refused_with_the_reason(
    tmp_path: Path, master: str, text: str, reason: str
) -> None:
    settings = SparkSettings(master=master, conf_file=conf_file(tmp_path, text))
    with pytest.raises(MeshError, match="MESH-S150") as caught:
        cluster.check(settings, FAR)
    assert reason in str(caught.value.detail)


@pytest.mark.parametrize("url", ["nats://127.0.0.1:4222", "nats://n1:1,nats://localhost:2"])
def test_a_server_that_executors_can_not_reach_is_refused(url: str) -> None:
    with pytest.raises(MeshError, match="can't reach NATS"):
        cluster.check(SparkSettings(master=MASTER), NatsSettings(url=url))
    # A master on this machine has its executors there.
    assert (
        cluster.check(SparkSettings(master="spark://127.0.0.1:7077"), NatsSettings(url=url)) == {}
    )


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    settings = SparkSettings(master=MASTER, conf_file=str(tmp_path / "none"))
    with pytest.raises(MeshError, match=r"none.*MESH-S150"):
        cluster.check(settings, FAR)


@pytest.mark.parametrize(
    "nats",
    [
        LOGIN,
        NatsSettings(url="nats://worker:pass@n1:4222"),
        NatsSettings(url="nats://n1:4222", nkey_seed_file="/worker.nk"),
        NatsSettings(url="nats://n1:4222", creds="/worker.creds"),
        NatsSettings(url="nats://n1:4222", tls_cert="/c.pem", tls_key="/k.pem"),
    ],
)
def test_a_login_is_sent_over_encrypted_connections_only(
    tmp_path: Path, nats: NatsSettings
) -> None:
    for text in ("", "spark.authenticate true\n", "spark.network.crypto.enabled true\n"):
        settings = SparkSettings(master=MASTER, conf_file=conf_file(tmp_path, text))
        with pytest.raises(MeshError, match="MESH-S151"):
            cluster.check(settings, nats)
    settings = SparkSettings(master=MASTER, conf_file=conf_file(tmp_path, f"# ours\n{ENCRYPTED}"))
    assert cluster.check(settings, nats)["spark.authenticate"] == "true"


def test_addresses_and_ports_are_those_of_the_settings() -> None:
    settings = SparkSettings(
        master=MASTER, driver_host="w1", driver_port=7100, block_manager_port=7101, slots_port=7102
    )
    conf = cluster.conf(settings)
    assert conf["spark.driver.host"] == "w1"
    assert conf["spark.driver.port"] == "7100"
    assert conf["spark.driver.blockManager.port"] == "7101"
    address = cluster.slots_address(settings, settings.slots_port)
    assert (address.host, address.port, address.bind) == ("w1", 7102, "")


def test_the_driver_has_the_address_towards_its_master(tmp_path: Path) -> None:
    near = SparkSettings(master="spark://127.0.0.1:7077")
    assert cluster.driver_host(near) == "127.0.0.1"
    behind = SparkSettings(
        master=MASTER,
        driver_host="outer",
        conf_file=conf_file(tmp_path, "spark.driver.bindAddress 10.0.0.5\n"),
    )
    assert cluster.slots_address(behind, 0).bind == "10.0.0.5"


def test_executors_have_the_python_of_the_archive() -> None:
    assert cluster.python(SparkSettings(archives="/shared/env.zip")) == sys.executable
    assert cluster.python(SparkSettings(master=MASTER)) == sys.executable
    packed = SparkSettings(master=MASTER, driver_host="w1", archives="/shared/env.tar.gz")
    assert cluster.python(packed) == "./env/bin/python"
    assert cluster.conf(packed)["spark.archives"] == "/shared/env.tar.gz#env"
    named = SparkSettings(master=MASTER, driver_host="w1", archives="s3a://b/env.zip#mesh")
    assert cluster.python(named) == "./mesh/bin/python"
    assert cluster.conf(named)["spark.archives"] == "s3a://b/env.zip#mesh"
    assert cluster.python(replace(packed, python="/opt/python")) == "/opt/python"


def test_half_of_the_cores_have_slots() -> None:
    assert [cluster.slot_count(SparkSettings(), n) for n in (2, 3, 8)] == [1, 1, 4]
    assert cluster.slot_count(SparkSettings(slots=6), 8) == 6


def test_secrets_of_the_file_are_no_arguments(tmp_path: Path) -> None:
    path = conf_file(tmp_path, "spark.authenticate.secret s3cr3t\n")
    told = cluster.submit_arguments(SparkSettings(master=MASTER, conf_file=path))
    assert told == f"--properties-file {path} pyspark-shell"
    assert cluster.submit_arguments(SparkSettings(master=MASTER)) == "pyspark-shell"
