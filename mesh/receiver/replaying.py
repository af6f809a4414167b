"""Payloads that a manager replays to a source or sink: see ``mesh.jetstream.failed``."""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from mesh.connect.contract import UnavailableError
from mesh.model import codec, names
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from mesh.model.values import JsonObject

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A payload to be taken again."""

    id: int
    #: Name of the source, or of the sink's destination: ``sink http 2``.
    connector: str
    #: Place of the event in the channel of a sink.
    sequence: int
    index: int
    payload: bytes
    #: Values of the dynamic options.
    options: Mapping[str, str] = field(default_factory=dict)


def replayed_of(data: bytes) -> Replayed:
    """The value of a manager's question."""
    request: JsonObject = orjson.loads(data)
    payload = base64.b64decode(request["payload"])
    return Replayed(
        request["id"],
        request["connector"],
        request["sequence"],
        request["index"],
        payload,
        request["options"],
    )


async def listen(
    client: Client,
    app: str,
    group: str,
    take: Callable[[Replayed], Awaitable[str | None]],
) -> Subscription:
    """Answer the questions for a group.

    Args:
        client: the host's.
        app: the app.
        group: the group of the source or sink.
        take: takes a payload, and returns None or the reason why it is refused; raises
            ``UnavailableError`` while it can't.
    """
    running: set[asyncio.Task[None]] = set()

    async def answer(message: Msg) -> None:
        try:
            reason = await take(replayed_of(message.data))
            said = {"done": True} if reason is None else {"refused": reason}
        except UnavailableError as error:
            said = {"away": str(error)}
        # A manager that got no answer would wait; the entry stays.
        except Exception as error:
            log.exception("payload not taken", extra=fields(group=group))
            said = {"away": f"{type(error).__name__}: {error}"}
        await message.respond(codec.encode(said))

    async def received(message: Msg) -> None:
        # A slow destination must not hold up the next question.
        task = asyncio.create_task(answer(message))
        running.add(task)
        task.add_done_callback(running.discard)

    # One of two instances answers while one takes over from the other.
    return await client.subscribe(
        names.connector_subject(app, group), queue="connector", cb=received
    )
