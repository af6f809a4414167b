"""Secrets in ``@store`` and in the file of data sources, for the processes that use databases.

These are Python workers of Spark and the process that answers questions.  ``mesh.store`` knows no
NATS, so it finds this function by its name in the environment.  The settings, which have passwords,
are in a file of the agent's: functions of apps can read the environment.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.files import scratch
from mesh.jetstream.connection import close, connect
from mesh.jetstream.secret_store import SecretStore
from mesh.model import codec
from mesh.settings import Settings
from mesh.store import sources

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

SETTINGS_VARIABLE: Final = "MESH_STORES_SETTINGS"
_FUNCTION: Final = "mesh.worker.store_secrets:values"
#: Values are read again after this time: a question need not connect to NATS each time.
_CACHE_S: Final = 30.0
_cache: dict[tuple[str, str], tuple[float, str]] = {}


def variables(settings: Settings) -> dict[str, str]:
    """The environment of processes that use databases, until this process ends."""
    return {
        **sources.variables(settings, _FUNCTION),
        SETTINGS_VARIABLE: str(_stored(codec.encode(settings))),
    }


@cache
def _stored(settings: bytes) -> Path:
    """The path of a file with these settings, for this user alone."""
    path = scratch.for_process("stores") / "settings.json"
    path.touch(mode=0o600)
    path.write_bytes(settings)
    return path


def values(names: Collection[str], app: str) -> Mapping[str, str]:
    """Values by name for an app, at most half a minute old.

    Raises:
        MeshError: MESH-N110, no server answers; MESH-C140 .. C142, see ``SecretStore``.
    """
    now_s = time.monotonic()
    cached = {name: _cache.get((name, app), (float("-inf"), "")) for name in names}
    missing = [name for name in names if now_s - cached[name][0] > _CACHE_S]
    if missing:
        settings = codec.decode(Settings, Path(os.environ[SETTINGS_VARIABLE]).read_bytes())
        # The caller's thread may have a loop of its own.
        with ThreadPoolExecutor(1) as threads:
            fresh = threads.submit(asyncio.run, _read(settings, missing, app)).result()
        _cache.update({(name, app): (now_s, value) for name, value in fresh.items()})
    return {name: _cache[name, app][1] for name in names}


async def _read(settings: Settings, names: Collection[str], app: str) -> Mapping[str, str]:
    client = await connect(settings.nats, "mesh-store-secrets")
    try:
        store = SecretStore(client.jetstream(), settings.secrets.key_file)
        return await store.values(names, app)
    finally:
        await close(client)
