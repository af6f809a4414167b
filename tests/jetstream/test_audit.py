"""The audit under requests of nobody: counted, bounded, and with a warning before it is full."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx
import pytest

from mesh.api import users
from mesh.api.auth import Access, RateLimits
from mesh.jetstream.audit import ADDRESSES_MAX, MINUTE_MS, TEXT_MAX, Audit, AuditEntry, Refused
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.settings import NatsSettings
from tests.support.api_users import app_of

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


NOBODY: Final = AuditEntry(1000, "eve", "", "192.0.2.1", "GET", "/nodes", 401)
ADA: Final = replace(NOBODY, user="ada", how="password", status=403)


@pytest.mark.slow
@pytest.mark.nats
async def test_requests_of_nobody_fill_neither_the_audit_nor_the_log(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users.add(tmp_path / "users", "ada", "a long password")
    client = await connect(NatsSettings(nats_server.url), "test")
    audit = Audit(client)
    access = Access(
        users.Users(tmp_path / "users"), note=audit.note, limits=RateLimits(0.001, 300.0)
    )
    transport = httpx.ASGITransport(app_of(access), client=("192.0.2.1", 1))
    long = "/siddhi-apps/" + "x" * 5000 + "/status"
    form = {"Content-Type": "text/plain"}
    try:
        with caplog.at_level(logging.INFO):
            async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
                asked = [await http.get(long) for _ in range(200)]
                asked += [await http.get("/nodes", auth=("eve", word)) for word in "ab"]
                asked += [await http.post("/login/monitoring", headers=form) for _ in range(200)]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(audit.follow)
                found: list[dict[str, Any]] = []
                with anyio.fail_after(20):
                    while not found:
                        found = await audit.last(500)
                tasks.cancel_scope.cancel()
    finally:
        await close(client)
    assert {one.status_code for one in asked} == {401, 415, 429}
    assert [one["count"] for one in found] == [1]
    assert max(len(found[0]["path"]), len(found[0]["app"])) <= TEXT_MAX
    lines = [one for one in caplog.records if one.name.startswith("mesh.")]
    # The first refusal, one failed sign-in, and the others with their number at the end.
    assert [one.getMessage() for one in lines] == ["request", "login failed", "request"]


@pytest.mark.nats
async def test_the_stream_of_an_earlier_version_gets_its_bound(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    try:
        js = client.jetstream()
        await js.add_stream(
            name=names.AUDIT_STREAM,
            subjects=[f"{names.AUDIT_SUBJECT}.>"],
            max_age=1000,
            deny_delete=True,
            deny_purge=True,
        )
        await Audit(client, bytes_max=2_000_000).start()
        config = (await js.stream_info(names.AUDIT_STREAM)).config
        assert (config.max_bytes, config.max_age, config.deny_purge) == (2_000_000, 1000, True)
    finally:
        await close(client)


@pytest.mark.nats
async def test_an_audit_that_is_almost_full_warns_once(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    try:
        audit = Audit(client, bytes_max=1_000_000)
        await audit.start()
        await audit.warn()
        assert "almost full" not in caplog.text
        for _ in range(90):
            await client.jetstream().publish(f"{names.AUDIT_SUBJECT}.api", b"x" * 10_000)
        await audit.warn()
        await audit.warn()
        assert caplog.text.count("the audit is almost full") == 1
        for _ in range(50):
            await client.jetstream().publish(f"{names.AUDIT_SUBJECT}.api", b"x" * 10_000)
        assert (await client.jetstream().stream_info(names.AUDIT_STREAM)).state.bytes <= 1_000_000
    finally:
        await close(client)


@pytest.mark.nats
async def test_the_audit_is_stored_and_can_not_be_erased(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    try:
        audit = Audit(client)
        await audit.start()
        await audit.start()
        for number in range(3):
            audit.note(AuditEntry(number, "ada", "password", "::1", "DELETE", "/x", 200))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(audit.follow)
            with anyio.fail_after(20):
                while len(await audit.last(10)) < 3:
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert [one["at_ms"] for one in await audit.last(2)] == [1, 2]
        js = client.jetstream()
        with pytest.raises(Exception, match="not permitted"):
            await js.purge_stream("mesh_audit")
        with pytest.raises(Exception, match="not permitted"):
            await js.delete_msg("mesh_audit", 1)
    finally:
        await close(client)


def test_refusals_of_an_address_are_one_entry_a_minute_with_their_number() -> None:
    refused = Refused()
    assert refused.add(NOBODY) == [NOBODY]
    for n in range(1, 1000):
        assert refused.add(replace(NOBODY, at_ms=1000 + n, path=f"/{n}")) == []
    assert refused.due(1000 + MINUTE_MS - 1) == []
    (rest,) = refused.due(1000 + MINUTE_MS)
    assert (rest.count, rest.path, rest.at_ms) == (999, "/999", 1999)
    # The address goes on: one entry for the next minute, none at once.
    later = replace(NOBODY, at_ms=2000 + MINUTE_MS)
    assert [refused.add(later) for _ in range(5)] == [[]] * 5
    (rest,) = refused.add(replace(later, at_ms=9000 + 2 * MINUTE_MS))
    assert rest.count == 5
    assert [one.count for one in refused.rest()] == [1]
    assert refused.rest() == []


def test_an_address_that_was_quiet_for_a_minute_is_written_at_once_again() -> None:
    refused = Refused()
    later = replace(NOBODY, at_ms=NOBODY.at_ms + MINUTE_MS)
    assert [refused.add(NOBODY), refused.add(later)] == [[NOBODY], [later]]


def test_a_clock_that_was_set_back_holds_back_no_entry() -> None:
    refused = Refused()
    far = replace(NOBODY, at_ms=10**12)
    refused.add(far)
    refused.add(far)
    assert [one.count for one in refused.due(1000)] == [1]


def test_many_addresses_are_counted_together() -> None:
    refused = Refused()
    many = [replace(NOBODY, source=f"192.0.{n // 256}.{n % 256}") for n in range(5000)]
    written = [one for entry in many for one in refused.add(entry)]
    assert len(written) == ADDRESSES_MAX + 1
    (rest,) = refused.due(1000 + MINUTE_MS)
    assert (rest.source, rest.count) == ("", 5000 - ADDRESSES_MAX - 1)


def test_a_user_who_is_known_has_more_entries() -> None:
    refused = Refused()
    written = [one for _ in range(500) for one in refused.add(ADA)]
    assert 20 <= len(written) <= 100
    assert refused.add(NOBODY) == [NOBODY]
    (rest,) = refused.due(1000 + MINUTE_MS)
    assert rest.count == 500 - len(written)


def test_changes_and_failures_of_users_are_each_an_entry() -> None:
    counted = [
        replace(NOBODY, how=how, status=status).is_counted
        for how in ("", "password")
        for status in (200, 303, 401, 403, 404, 415, 429, 500)
    ]
    assert counted == [False] * 2 + [True] * 6 + [False] * 2 + [True] * 2 + [False] * 2 + [
        True,
        False,
    ]
