"""A cluster continues from what earlier versions have stored in NATS.

``tests/cases/compat-buckets`` has a file for each released version, with the records of a cluster
that was stopped.  ``--rewrite`` records the present version's, and never changes an earlier file.
States of operators have a test of their own: ``tests/operators/test_compat.py``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson
import pytest
from nats.js.errors import NoKeysError

import mesh
from mesh.jetstream import channels
from mesh.model import codec, names
from mesh.model.cluster import AppRecord
from mesh.settings import ChannelSettings
from tests.support.agents import Cluster, Eye, looking
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RECORDS: Final = ROOT / "tests" / "cases" / "compat-buckets"
VERSIONS: Final = sorted(RECORDS.glob("*.json"))
BUCKETS: Final = (names.CONTROL_BUCKET, names.APPS_BUCKET, names.STATUS_BUCKET)
#: They end with their process.
PASSING: Final = (names.LEASE_KEY, "node.manager.", "node.worker.")

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


async def stored(eye: Eye) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for bucket in BUCKETS:
        values = await eye.client.jetstream().key_value(bucket)
        found[bucket] = {}
        try:
            keys = await values.keys()
        except NoKeysError:
            continue
        for key in sorted(keys):
            if not key.startswith(PASSING):
                found[bucket][key] = orjson.loads((await values.get(key)).value or b"null")
    return found


def start(cluster: Cluster) -> None:
    cluster.manager("m1")
    for worker in ("w1", "w2"):
        cluster.worker(worker)


async def test_the_records_of_this_version_are_kept(cluster: Cluster, rewrite: bool) -> None:
    path = RECORDS / f"{mesh.__version__}.json"
    if path.exists() or not rewrite:
        assert path.exists(), "a release records its buckets: pytest --rewrite"
        return
    start(cluster)

    async with looking(cluster) as eye:
        await eye.deploy_on("w1", "w2")
        RECORDS.mkdir(exist_ok=True)
        path.write_bytes(orjson.dumps(await stored(eye), option=orjson.OPT_INDENT_2) + b"\n")


@pytest.mark.slow
@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
async def test_a_cluster_goes_on_from_the_records_of(path: Path, cluster: Cluster) -> None:
    records = orjson.loads(await asyncio.to_thread(path.read_bytes))
    epochs = {
        value["instance"]: value["epoch"]
        for key, value in records[names.CONTROL_BUCKET].items()
        if key.startswith("assignment.")
    }
    assert epochs

    async with looking(cluster) as eye:
        for bucket, values in records.items():
            target = await eye.client.jetstream().key_value(bucket)
            for key, value in values.items():
                await target.put(key, orjson.dumps(value))
                if key.startswith("app."):
                    spec = codec.decode(AppRecord, orjson.dumps(value)).spec
                    await channels.ensure_channels(eye.client, spec, ChannelSettings())

    start(cluster)
    async with looking(cluster) as eye:
        apps = {one.value.spec.name for one in eye.view.snapshot().apps}
        assert apps == {key.removeprefix("app.") for key in records[names.APPS_BUCKET]}
        for app in apps:
            await eye.service.wait_running(app, 60)
        now = eye.epochs()
        assert now.keys() == epochs.keys()
        assert all(now[name] >= epoch for name, epoch in epochs.items())
