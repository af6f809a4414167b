"""The directory of users shows its own changes as soon as they are made."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mesh.jetstream import channels, directory, kv
from mesh.jetstream.connection import close, connect
from mesh.jetstream.directory import Directory, DirectoryUser
from mesh.model import names
from mesh.model.access import ROLES, Grant
from mesh.processes.signals import end
from mesh.settings import ChannelSettings, NatsSettings
from tests.support.first_reads import Shrinking, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer

#: Time between two messages to a reader, seconds.
_APART_S = 0.02


class Late:
    """A server that has acknowledged a write for a while when readers get it."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self._last_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._js, name)

    async def subscribe(self, subject: str, cb: Callable[[Msg], Any], **given: Any) -> Any:
        loop = asyncio.get_running_loop()

        async def later(message: Msg) -> None:
            self._last_s = max(self._last_s, loop.time()) + _APART_S
            loop.call_at(self._last_s, lambda: asyncio.ensure_future(cb(message)))

        return await self._js.subscribe(subject, cb=later, **given)


@pytest.mark.nats
@pytest.mark.timeout(60)
async def test_a_change_is_there_when_its_call_returns_whatever_others_change(
    nats_server: NatsServer,
) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    js = client.jetstream()
    directory = Directory(Late(js))  # type: ignore[arg-type]
    await directory.start()
    following = asyncio.create_task(directory.follow())
    await directory.ready()

    async def others() -> None:
        """Another manager changes something else, just before."""
        await kv.put(js, names.USERS_BUCKET, "scim.User.1", b'{"userName": "x"}')

    try:
        await others()
        await directory.put_user(DirectoryUser("eve", "hash", ()))
        assert set(directory.users) == {"eve"}
        await others()
        grant = Grant(ROLES["viewer"])
        secret, token = await directory.make_token("eve", "ci", grant, 10**14, 0)
        assert directory.token(secret) == token
        # The end of the token is a change of its own.
        await directory.delete_user("eve")
        assert not directory.users
        assert not directory.tokens
    finally:
        await end([following])
        await close(client)


@pytest.mark.nats
def test_a_directory_is_complete_though_the_last_message_never_comes(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "_SILENCE_S", 0.1)

    async def play(client: Client) -> None:
        js = client.jetstream()
        await channels.ensure_buckets(js, ChannelSettings())
        users = directory.Directory(js)
        await users.start()
        for key in ("user.a", "user.b"):
            await kv.put(js, names.USERS_BUCKET, key, b'{"name": "%b"}' % key[-1:].encode())
        users = directory.Directory(Shrinking(js))  # type: ignore[arg-type]
        following = asyncio.create_task(users.follow())
        await users.ready()
        assert users.version == 1
        following.cancel()
        await asyncio.wait([following])

    run(nats_server, play)
