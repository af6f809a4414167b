"""Sessions on an existing Spark cluster: what it needs, and what can't work there.

The worker's session is the driver (client mode); tasks run in the executors of a standalone, YARN
or Kubernetes cluster.  Decisions here are pure; ``cores`` and ``executor_faults`` ask Spark.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections import Counter
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mesh import mesh_name
from mesh.errors import MeshError
from mesh.functions.script_switch import SWITCH
from mesh.spark import executor_check
from mesh.spark.shared_query.slot_network import Address
from mesh.store import sources
from mesh.telemetry import traces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from mesh.settings import NatsSettings, SparkSettings

#: Least cores: one for a slot, one for queries and instances of their own.
CORES_MIN: Final = 2
#: Time for executors to register, and without a new one after which all are there; seconds.
_REGISTER_S: Final = 60.0
_QUIET_S: Final = 2.0
_LOOK_S: Final = 0.2
_MASTERS: Final = ("spark", "yarn", "k8s")
#: Variables of the session that tasks need.
_VARIABLES: Final = (
    mesh_name.VARIABLE,
    SWITCH,
    sources.SHARD_VARIABLE,
    sources.SOURCES_VARIABLE,
    sources.ACCESS_VARIABLE,
    traces.ENDPOINT_VARIABLE,
    traces.RATIO_VARIABLE,
    traces.NAME_VARIABLE,
)
#: Name of an unpacked environment in the directory of an executor.
_ENVIRONMENT: Final = "env"
_TRUE: Final = "true"


def is_local(master: str) -> bool:
    """Whether all tasks run in the session's own process."""
    return master.startswith("local")


def check(spark: SparkSettings, nats: NatsSettings) -> dict[str, str]:
    """Refuse settings that can't work on a cluster; the content of ``spark.conf_file``.

    Raises:
        MeshError: MESH-S150 for what can't work, MESH-S151 for credentials that anyone on the
            network could read.
    """
    if is_local(spark.master):
        return {}
    kind = spark.master.partition(":")[0]
    if kind not in _MASTERS:
        raise _refused(
            f'spark.master "{spark.master}" can\'t run instances',
            "Spark Connect has no driver on this machine, which the shared query needs"
            if kind == "sc"
            else "It is no master of Spark",
            "Use local[N], spark://HOST:PORT, yarn, or k8s://URL.",
        )
    conf = _conf_file(spark.conf_file)
    for key, why in _IMPOSSIBLE.items():
        if conf.get(key, "").lower() in ("true", "cluster"):
            raise _refused(f'"{key}" is {conf[key]} in spark.conf_file', why, f"Remove {key}.")
    if kind != "yarn" and not _is_near(urlsplit(spark.master.removeprefix("k8s://")).hostname):
        _check_reachable(nats.url)
    _check_secrets(conf, nats)
    return conf


def conf(spark: SparkSettings) -> dict[str, str]:
    """Spark's configuration for a cluster, besides that of ``spark.conf_file``."""
    host = driver_host(spark)
    settings = {
        "spark.driver.host": host,
        "spark.io.encryption.enabled": _TRUE,
        f"spark.executorEnv.{executor_check.VARIABLE}": "1",
        **{
            f"spark.executorEnv.{name}": value
            for name in _VARIABLES
            if (value := os.environ.get(name))
        },
    }
    if spark.driver_port:
        settings["spark.driver.port"] = str(spark.driver_port)
    if spark.block_manager_port:
        settings["spark.driver.blockManager.port"] = str(spark.block_manager_port)
    if spark.archives:
        name = spark.archives if "#" in spark.archives else f"{spark.archives}#{_ENVIRONMENT}"
        settings["spark.archives"] = name
    return settings


def python(spark: SparkSettings) -> str:
    """The Python of executors, relative to an executor's directory if it comes in an archive."""
    if is_local(spark.master):
        return sys.executable
    if spark.python:
        return spark.python
    if not spark.archives:
        return sys.executable
    return f"./{spark.archives.partition('#')[2] or _ENVIRONMENT}/bin/python"


def driver_host(spark: SparkSettings) -> str:
    """The address at which executors reach the driver.

    Without a setting: of the interface that leads to the master.
    """
    if spark.driver_host:
        return spark.driver_host
    host = urlsplit(spark.master.removeprefix("k8s://").partition(",")[0]).hostname
    if host is None:
        return socket.getfqdn()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Chooses a route, and sends nothing.
            probe.connect((host, 9))
        except OSError:
            return socket.getfqdn()
        return str(probe.getsockname()[0])


def slots_address(spark: SparkSettings, port: int) -> Address:
    """Address of the session for slots; it listens where the driver does."""
    bind = _conf_file(spark.conf_file).get("spark.driver.bindAddress", "")
    return Address(driver_host(spark), port, bind)


def slot_count(spark: SparkSettings, cores: int) -> int:
    """Slots of the shared query: half of the cores, as queries of their own need the others."""
    return spark.slots or max(1, cores // 2)


def executors(session: SparkSession) -> Counter[str]:
    """The cores of each executor by its id."""
    context = session.sparkContext
    entries = context._jsc.sc().statusStore().executorList(True)
    summaries = [entries.apply(n) for n in range(entries.size())]
    return Counter({one.id(): one.totalCores() for one in summaries if one.id() != "driver"})


def wait_for_cores(session: SparkSession, spark: SparkSettings) -> int:
    """Wait until executors have registered, and no further one comes; their cores.

    Raises:
        MeshError: MESH-S152, there are too few after a minute.
    """
    started_s = quiet_s = time.monotonic()
    seen = executors(session)
    least = max(CORES_MIN, spark.slots + 1)
    while True:
        time.sleep(_LOOK_S)
        now_s, now = time.monotonic(), executors(session)
        if now != seen:
            seen, quiet_s = now, now_s
        if seen.total() >= least and now_s - quiet_s > _QUIET_S:
            return seen.total()
        if now_s - started_s > _REGISTER_S:
            raise MeshError(
                "MESH-S152",
                f'Spark\'s master "{spark.master}" has given {seen.total()} cores',
                detail=f"This worker needs {least}: a slot of the shared query stays in a core, "
                "and other queries need one.",
                hint="Start more Spark workers, or lower spark.cores.max of other applications.",
            )


def check_executors(session: SparkSession, cores: int) -> None:
    """Run a small job on all executors that imports what tasks import.

    Raises:
        MeshError: MESH-S153, an executor can't run the mesh.
    """
    context = session.sparkContext
    expected = executor_check.versions()
    try:
        tasks = context.parallelize(range(cores), cores)
        faults = tasks.mapPartitions(executor_check.faults(expected)).collect()
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r"Error: |No module|Cannot run", line)]
        raise _unable((errors or lines or ["no reason given"])[0]) from error
    if faults:
        raise _unable("; ".join(sorted(set(faults))))


def submit_arguments(spark: SparkSettings) -> str:
    """Arguments of ``spark-submit``: secrets of a file do not show in the list of processes."""
    path = spark.conf_file
    return f"--properties-file {Path(path).absolute()} pyspark-shell" if path else "pyspark-shell"


_IMPOSSIBLE: Final = {
    "spark.speculation": "A second attempt of a slot would serve the same instances at once",
    "spark.dynamicAllocation.enabled": "Slots stay, so Spark sees no load to follow: it would "
    "add and remove executors without sense",
    "spark.submit.deployMode": "The worker itself is the driver",
}


def _conf_file(path: str) -> dict[str, str]:
    """A file like Spark's ``spark-defaults.conf``."""
    if not path:
        return {}
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, ValueError) as error:
        raise _refused(
            f'spark.conf_file "{path}" can\'t be read',
            str(error),
            "It has lines like 'spark.executor.memory 2g'.",
        ) from error
    entries = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    parts = [re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in entries]
    return {one[0]: one[1] if len(one) > 1 else "" for one in parts}


def _is_near(host: str | None) -> bool:
    """Whether a host is this machine."""
    if host is None or host == "localhost":
        return host is not None
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _check_reachable(urls: str) -> None:
    for url in urls.split(","):
        host = urlsplit(url.strip()).hostname
        if _is_near(host):
            raise _refused(
                f'executors can\'t reach NATS at "{host}"',
                "Tasks read and write JetStream themselves, and that address is of this machine",
                "Give nats.url with names or addresses that all executors reach.",
            )


def _check_secrets(conf: Mapping[str, str], nats: NatsSettings) -> None:
    """Refuse to send credentials of NATS over connections of Spark that others may read."""
    has_login = nats.user or nats.password or nats.creds or nats.nkey_seed_file or nats.tls_key
    if not has_login and not any("@" in url for url in nats.url.split(",")):
        return
    is_encrypted = any(
        conf.get(key, "").lower() == _TRUE
        for key in ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
    )
    if conf.get("spark.authenticate", "").lower() == _TRUE and is_encrypted:
        return
    raise MeshError(
        "MESH-S151",
        "the login of NATS would reach executors unencrypted",
        detail="Spark sends the options of sources with its tasks.",
        hint="Set spark.authenticate and spark.network.crypto.enabled to true, with "
        "spark.authenticate.secret, in spark.conf_file and on the Spark cluster.",
    )


def _refused(what: str, why: str, hint: str) -> MeshError:
    return MeshError(
        "MESH-S150", f"this Spark cluster can't be used: {what}", detail=f"{why}.", hint=hint
    )


def _unable(why: str) -> MeshError:
    return MeshError(
        "MESH-S153",
        "an executor can't run tasks of the mesh",
        detail=f"{why}.",
        hint="Ship the worker's own environment: 'mesh pack', then spark.archives.",
    )
