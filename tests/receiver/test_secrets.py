"""Secrets of options: stored encrypted, put in where a sink runs, and shown nowhere else."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import signal
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from mesh.api.auth import Access
from mesh.api.routes import make_app
from mesh.errors import MeshError, MeshErrors
from mesh.jetstream import secret_store
from mesh.jetstream.connection import close, connect
from mesh.jetstream.secret_store import SecretStore
from mesh.language.substitution import substitute
from mesh.logs import JsonFormatter, TextFormatter, fields
from mesh.model import codec, secrets
from mesh.plan.build import plan
from mesh.receiver.environment import no_secrets
from mesh.receiver.opened import Opened
from mesh.settings import NatsSettings
from tests.support.api import FakeService

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

VALUE = "correct-horse-battery"
TEXT = """@App:name('Alarm')
define stream Readings (sensor string, value double);
@sink(type='http', publisher.url='http://127.0.0.1:1/x', basic.auth.username='ann',
      basic.auth.password='${secret:alarm.password}', @map(type='json'))
define stream Alarms (sensor string, value double);
from Readings[value > 40.0] select sensor, value insert into Alarms;
"""


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_bytes(base64.b64encode(os.urandom(32)) + b"\n")
    return path


def _sink() -> Opened:
    spec = plan(substitute(TEXT, {})).spec
    (group,) = [one for one in spec.groups if one.name.startswith("sink-")]
    return Opened.of_group(group)


def test_the_reference_stays_in_plans_and_the_value_is_in_the_options_alone() -> None:
    spec = plan(substitute(TEXT, {"secret": "no variable"})).spec
    assert b"${secret:alarm.password}" in codec.encode(spec)
    opened = _sink()
    assert secrets.names_in(opened.connector.options.values()) == {"alarm.password"}
    values = opened.values(None, secrets={"alarm.password": VALUE})  # type: ignore[arg-type]  # unused
    assert values["basic.auth.password"] == VALUE


def test_a_secret_outside_of_a_string_is_refused() -> None:
    with pytest.raises((MeshError, MeshErrors)):
        plan(substitute(TEXT.replace("40.0", "${secret:limit}"), {}))


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


def test_the_key_may_be_a_credential_of_systemd(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file.rename(key_file.with_name(secret_store.CREDENTIAL))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(key_file.parent))
    assert len(secret_store.read_key("")) == 32


@pytest.mark.parametrize("content", [b"", b"AAAA", b"no base64!"])
def test_another_key_is_refused(key_file: Path, content: bytes) -> None:
    key_file.write_bytes(content)
    with pytest.raises(MeshError, match="C140"):
        secret_store.read_key(str(key_file))


async def test_the_api_lists_names_and_answers_no_value(
    nats_server: NatsServer, key_file: Path
) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    store = SecretStore(client.jetstream(), str(key_file))
    transport = httpx.ASGITransport(make_app(FakeService().as_manager, Access(None, secrets=store)))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answers = [
                await http.put("/secrets/db", content=VALUE, params={"apps": "Shop*, Till"}),
                await http.get("/secrets"),
                await http.put("/secrets/db", content=VALUE, params={"apps": "a b"}),
                await http.put("/secrets/..%2Fdb", content=VALUE),
                await http.put("/secrets/A", content=VALUE),
                await http.put("/secrets/db", content=b""),
                await http.delete("/secrets/db"),
                await http.delete("/secrets/db"),
            ]
    finally:
        await close(client)
    assert [one.status_code for one in answers] == [200, 200, 400, 404, 400, 400, 200, 404]
    assert answers[1].json() == [{"name": "db", "apps": "Shop*,Till"}]
    assert not any(VALUE in one.text for one in answers)


async def test_a_server_that_does_not_answer_is_told(
    nats_server: NatsServer, key_file: Path
) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    store = SecretStore(client.jetstream(timeout=0.2), str(key_file))
    transport = httpx.ASGITransport(make_app(FakeService().as_manager, Access(None, secrets=store)))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            nats_server.process.send_signal(signal.SIGSTOP)
            paused = await http.put("/secrets/db", content=VALUE)
            nats_server.process.send_signal(signal.SIGCONT)
    finally:
        nats_server.process.send_signal(signal.SIGCONT)
        await close(client)
    assert paused.status_code == 503
    assert paused.headers["Retry-After"] == "1"
    assert paused.json()["code"] == "MESH-A503"


def test_values_that_a_process_has_seen_are_masked_in_its_logs() -> None:
    secrets.remember([VALUE, "ab"])
    record = logging.makeLogRecord({"msg": f"login with {VALUE}", "name": "x", "levelname": "INFO"})
    record.__dict__ |= fields(error=f"refused {VALUE}", about="ab")
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record)
        assert VALUE not in line
        assert line.count(secrets.MASK) == 2
        assert "ab" in line


def test_a_process_without_secrets_says_so() -> None:
    with pytest.raises(MeshError, match="C142"):
        asyncio.run(no_secrets({"db"}))


@pytest.mark.parametrize("value", ["Zq7@ss/w0rd-S3cr3t%x", "a:b@c?d#e", "plain", "p%40ss"])
def test_a_part_of_a_secret_is_no_host_and_in_no_endpoint(value: str) -> None:
    text = TEXT.replace("http://127.0.0.1:1/x", "http://u:${secret:p}@h:81/${secret:p}?k=1")
    spec = plan(substitute(text.replace("alarm.password", "p"), {})).spec
    opened = Opened.of_group(next(one for one in spec.groups if one.name.startswith("sink-")))
    url = urlsplit(opened.values(None, secrets={"p": value})["publisher.url"])  # type: ignore[arg-type]  # unused
    assert (url.hostname, url.port, url.username) == ("h", 81, "u")
    assert unquote(url.password or "") == unquote(value)
    assert opened.endpoint(None) == "http://h:81/***"  # type: ignore[arg-type]  # unused
    assert secrets.filled("${secret:p}", {"p": value}) == value
    servers = secrets.filled("nats://u:${secret:p}@h,nats://u:${secret:p}@i", {"p": value})
    assert [urlsplit(one).hostname for one in servers.split(",")] == ["h", "i"]
    secrets.remember([value])
    assert secrets.masked(f"{url.geturl()} {value}").count(value) == 0
    assert (url.password or "") not in secrets.masked(url.geturl())
