"""Source and sink ``inMemory``: topics between apps, in one JetStream stream of the mesh.

A topic keeps its events as channels do.  A source begins with the events after its first start.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError
from nats.js.api import StreamConfig
from nats.js.errors import APIError, NotFoundError

from mesh.connect.contract import Batch, Context, UnavailableError
from mesh.model import names
from mesh.receiver.publisher import Publisher
from mesh.receiver.types.nats_sink import NatsSink
from mesh.receiver.types.nats_source import NatsSource

if TYPE_CHECKING:
    from mesh.connect.contract import Record
    from mesh.model.values import JsonMapping


def subject_of(topic: str) -> str:
    """The subject of a topic, which may have any characters."""
    return names.topic_subject(hashlib.sha256(topic.encode(errors="replace")).hexdigest()[:32])


async def ensure_topics(context: Context) -> None:
    """Make the stream of the topics, with the bounds and replicas of the app's own channel.

    Raises:
        UnavailableError: the broker does not answer, or refuses it.
    """
    js = context.client.jetstream()
    try:
        try:
            await js.stream_info(names.TOPICS)
        except NotFoundError:
            app_config = (await js.stream_info(names.js_stream(context.app, context.stream))).config
            config = StreamConfig(
                name=names.TOPICS,
                subjects=[names.topic_subject("*")],
                max_age=app_config.max_age,
                max_bytes=app_config.max_bytes,
                num_replicas=app_config.num_replicas,
                discard=app_config.discard,
            )
            await js.add_stream(config)
    except (NatsError, APIError, OSError, TimeoutError) as error:
        raise UnavailableError(f"topics: {error}") from error


async def _flush(context: Context) -> None:
    try:
        await context.client.flush()
    except (NatsError, OSError, TimeoutError) as error:
        raise UnavailableError(f"{error}" or type(error).__name__) from error


class InMemorySource(NatsSource):
    """See ``mesh.connect.contract.Source``."""

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Continue the topic after the position; the first time after its last event."""
        await ensure_topics(context)
        self._is_first = position is None
        self._client = context.client
        subject = subject_of(str(context.options["topic"]))
        try:
            if position is None:
                info = await self._info(names.TOPICS)
                position = {"created": info["created"], "sequence": info["state"]["last_seq"]}
            await self._open_stream(names.TOPICS, subject, dict(position))
        except (NatsError, OSError, TimeoutError) as error:
            raise UnavailableError(f"{error}" or type(error).__name__) from error

    async def check(self, context: Context) -> Batch | None:
        """The broker answers; a topic is made by the first app that uses it."""
        await _flush(context)
        return None

    async def read(self) -> Batch | None:
        """The events of the topic; first of all where it begins, which is stored."""
        if self._is_first:
            self._is_first = False
            return Batch([], self._position, [])
        return await super().read()


class InMemorySink(NatsSink):
    """See ``mesh.connect.contract.Sink``."""

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Make the stream of the topics, and use the host's connection."""
        await ensure_topics(context)
        self._options = {**context.options, "acks": True}
        self._type = context.content_type
        self._client = context.client
        self._publisher = Publisher(context.client)
        await self._publisher.open()

    async def check(self, context: Context) -> None:
        """The broker answers; a topic is made by the first app that uses it."""
        await _flush(context)

    def _subject(self, record: Record) -> str:
        topic = str({**self._options, **record.options}["topic"])
        return subject_of(topic) if topic else ""

    async def close(self) -> None:
        """The connection is the host's."""
        client, self._client = self._client, None
        if client is not None:
            await self._publisher.close()
