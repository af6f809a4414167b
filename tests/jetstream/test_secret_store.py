"""Secrets are stored encrypted, with a key of the node."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.jetstream import secret_store
from mesh.jetstream.connection import close, connect
from mesh.jetstream.secret_store import SecretStore
from mesh.settings import NatsSettings
from tests.support.secret_apps import VALUE, key_file

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.environment import Variables


__all__ = ("key_file",)


async def test_values_are_encrypted_by_name_and_key(
    nats_server: NatsServer, key_file: Path
) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    try:
        js = client.jetstream()
        store = SecretStore(js, str(key_file))
        assert await store.listed() == []
        await store.put("a", VALUE)
        await store.put("b", "other value")
        assert await store.listed() == ["a", "b"]
        assert await store.values({"a"}) == {"a": VALUE}
        bucket = await js.key_value("mesh_secrets")
        stored = (await bucket.get("a")).value or b""
        assert VALUE.encode() not in stored
        # A value in the place of another one, and another key.
        await bucket.put("b", stored)
        for wanted, one in (("b", store), ("a", SecretStore(js, str(_other(key_file))))):
            with pytest.raises(MeshError, match="C141"):
                await one.values({wanted})
        with pytest.raises(MeshError, match="C142"):
            await store.values({"missing"})
        with pytest.raises(MeshError, match="C140"):
            await SecretStore(js, "").values({"a"})
        # One of some apps is none of the others, also if somebody removes the list.
        await store.put("c", "for shops", "Shop*,Till")
        assert await store.values({"a", "c"}, "ShopTwo") == {"a": VALUE, "c": "for shops"}
        for app in ("Bank", ""):
            with pytest.raises(MeshError, match="C142"):
                await store.values({"c"}, app)
        assert await store.apps() == {"a": "", "b": "", "c": "Shop*,Till"}
        await bucket.put("c", (await bucket.get("c")).value or b"")
        with pytest.raises(MeshError, match="C141"):
            await store.values({"c"}, "Bank")
        assert await store.delete("a")
        assert not await store.delete("a")
    finally:
        await close(client)


def _other(key_file: Path) -> Path:
    path = key_file.with_name("other")
    path.write_bytes(base64.b64encode(os.urandom(32)))
    return path


def test_the_key_may_be_a_credential_of_systemd(key_file: Path, environment: Variables) -> None:
    key_file.rename(key_file.with_name(secret_store.CREDENTIAL))
    environment["CREDENTIALS_DIRECTORY"] = str(key_file.parent)
    assert len(secret_store.read_key("")) == 32


@pytest.mark.parametrize("content", [b"", b"AAAA", b"no base64!"])
def test_another_key_is_refused(key_file: Path, content: bytes) -> None:
    key_file.write_bytes(content)
    with pytest.raises(MeshError, match="C140"):
        secret_store.read_key(str(key_file))
