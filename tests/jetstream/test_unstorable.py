"""Records that can't be stored or read, amid others: none of them ends or holds up a loop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.clock import SystemClock
from mesh.control.journal import JournalEntry
from mesh.jetstream import journal, kv
from mesh.jetstream.audit import Audit, AuditEntry
from mesh.jetstream.connection import close, connect
from mesh.jetstream.directory import Directory, DirectoryUser
from mesh.jetstream.journal import Journal
from mesh.model import codec, names
from mesh.processes.signals import end
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

LIMIT_S = 60.0
#: More than the server accepts.
HUGE = "x" * (2 << 20)


@asynccontextmanager
async def connected(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    try:
        async with asyncio.timeout(LIMIT_S):
            yield client
    finally:
        await close(client)


async def test_an_entry_of_the_journal_that_can_not_be_stored_holds_up_no_other(
    nats_server: NatsServer,
) -> None:
    async with connected(nats_server) as client:
        js = client.jetstream()
        await journal.ensure_stream(js, 1)
        one = Journal(client, "manager m1", SystemClock())
        one.start()
        # The second is about a file in the folder of apps, whose name no app can have.
        for entry in (
            JournalEntry("read \udcff", app="A"),
            JournalEntry("did not follow it", app="a b *"),
            JournalEntry("failed", HUGE, app="A"),
            JournalEntry("placed", app="A"),
        ):
            one.note(entry)
        await one.stored()
        assert not one.tasks["journal"].done()
        # An entry of another version, or of a person.
        for payload in (b"{", b"null", b"{}"):
            await js.publish(names.journal_subject("A"), payload)
        texts = [entry.text for entry in await journal.read(js, "A")]
        assert sorted(texts) == ["did not follow it", "placed", "read ?"]
        await one.stop()


async def test_an_entry_of_the_audit_that_can_not_be_stored_holds_up_no_other(
    nats_server: NatsServer,
) -> None:
    async with connected(nats_server) as client:
        audit = Audit(client)
        following = asyncio.create_task(audit.follow())
        entry = AuditEntry(1, "ada", "password", "::1", "POST", "/apps", 200)
        for one in (replace(entry, path="/\udcff"), replace(entry, user=HUGE), entry):
            audit.note(one)
        found: list[dict[str, Any]] = []
        while len(found) < 2 and not following.done():
            found = await audit.last(10)
        assert [one["path"] for one in found] == ["/?", "/apps"]
        await end([following])


async def test_a_record_of_the_directory_that_is_none_keeps_no_user_out(
    nats_server: NatsServer,
) -> None:
    async with connected(nats_server) as client:
        js = client.jetstream()
        directory = Directory(js)
        await directory.start()
        values: list[Any] = [5, [], {}, {"name": []}, "text", None]
        for key in ("user.x", "token.x", "scim.User.1", "scim.Group.1", "scim.Odd.1", "setup"):
            for number, value in enumerate(values):
                data = orjson.dumps(value)
                await kv.put(js, names.USERS_BUCKET, f"{key}{number}", data)
        await kv.put(js, names.USERS_BUCKET, "setup", b"no JSON")
        following = asyncio.create_task(directory.follow())
        await directory.ready()
        await directory.put_user(DirectoryUser("ada", "hash", ()))
        assert set(directory.users) == {"ada"}
        assert not following.done()
        assert directory.provisioned == {}
        await end([following])


def test_a_lone_surrogate_is_written_as_a_question_mark() -> None:
    entry = JournalEntry("file \ud800.siddhi", "why", app="A")
    assert codec.decode(JournalEntry, codec.encode(entry)) == replace(entry, text="file ?.siddhi")
