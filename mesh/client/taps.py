"""Events of a stream as they arrive, and publishing of events, over NATS."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from mesh.errors import MeshError
from mesh.model.values import JsonMapping, JsonObject

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator

    from mesh.client.context import ClientContext
    from mesh.jetstream.channel_reader import ChannelMessage

    Event = bytes | JsonMapping

#: Events that wait for a reader of a tap that blocks.
_WAITING_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event of a stream."""

    #: Its values by attribute.
    event: JsonObject
    #: Milliseconds since 1970: of the publisher's header, else of storage, else of arrival.
    time_ms: int
    subject: str
    #: Of its message in the JetStream stream; 0 for an event that arrives.
    sequence: int = 0


class AsyncTap:
    """The events of a stream; an asynchronous context manager and iterator.

    Once it is entered, no event is missed.  A message that can't be read raises its MeshError, and
    ends the iteration, unless ``skip`` takes the error.
    """

    def __init__(
        self,
        context: ClientContext,
        app: str,
        stream: str,
        *,
        from_start: bool = False,
        skip: Callable[[MeshError], None] | None = None,
    ) -> None:
        self._target = context, app, stream
        self._from_start = from_start
        self._skip = skip
        self._exits = contextlib.AsyncExitStack()
        self._events: AsyncIterator[StreamEvent] | None = None

    async def __aenter__(self) -> Self:
        # NATS is for events alone.
        from mesh.client import wire

        context, app, stream = self._target
        subject_of(context, app, stream)
        client = await self._exits.enter_async_context(wire.connected(checked(context)))
        try:
            if self._from_start:
                messages = wire.stored(client, app, stream)
            else:
                messages = wire.live(await wire.subscribed(client, app, stream))
            await self._exits.enter_async_context(contextlib.aclosing(messages))
            events = contextlib.aclosing(self._read(messages))
            self._events = await self._exits.enter_async_context(events)
        except BaseException:
            await self._exits.aclose()
            raise
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._exits.__aexit__(*error)

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        assert self._events is not None, "a tap is entered before it is read"
        return self._events

    async def take(self, count: int, timeout_s: float) -> list[StreamEvent]:
        """The next events.

        Raises:
            TimeoutError: fewer came in time.
        """
        events: list[StreamEvent] = []
        try:
            async with asyncio.timeout(timeout_s):
                async for one in self:
                    events.append(one)
                    if len(events) >= count:
                        break
        except TimeoutError:
            raise _too_few(events, count) from None
        return events

    async def _read(
        self, messages: AsyncIterator[ChannelMessage]
    ) -> AsyncGenerator[StreamEvent, None]:
        async for message in messages:
            try:
                events = _events_of(message)
            except MeshError as error:
                if self._skip is None:
                    raise
                self._skip(error)
                continue
            for one in events:
                yield one


class Tap:
    """The events of a stream; a context manager and iterator whose reads block.

    As ``AsyncTap``, which it runs in a thread: it can be used where an event loop runs already, as
    in a notebook.
    """

    def __init__(self, context: ClientContext, app: str, stream: str, *, from_start: bool) -> None:
        self._tap = AsyncTap(context, app, stream, from_start=from_start)
        self._arrived: queue.Queue[StreamEvent | BaseException] = queue.Queue(_WAITING_MAX)
        self._is_entered = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mesh tap", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_ended = False

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_entered.wait()
        if self._task is None:
            self._thread.join()
            self.take(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended = True
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)
        # A thread that waits for room in the queue finds some.
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._arrived.get_nowait()
            self._thread.join(0.01)

    def __iter__(self) -> Iterator[StreamEvent]:
        while True:
            yield from self.take(1)

    def take(self, count: int, timeout_s: float | None = None) -> list[StreamEvent]:
        """The next events; ``timeout_s`` is the time for each.

        Raises:
            TimeoutError: an event did not come in time.
            MeshError: the connection has ended, or a message can't be read.
        """
        events: list[StreamEvent] = []
        while len(events) < count:
            try:
                one = self._arrived.get(timeout=timeout_s)
            except queue.Empty:
                raise _too_few(events, count) from None
            if isinstance(one, BaseException):
                self._arrived.put(one)
                raise one
            events.append(one)
        return events

    def _run(self) -> None:
        try:
            asyncio.run(self._pump())
        except asyncio.CancelledError:
            return
        except BaseException as error:
            if not self._is_ended:
                self._arrived.put(error)
        finally:
            self._is_entered.set()

    async def _pump(self) -> None:
        async with self._tap as events:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            self._is_entered.set()
            async for one in events:
                await asyncio.to_thread(self._arrived.put, one)


def _too_few(events: list[StreamEvent], count: int) -> TimeoutError:
    return TimeoutError(f"{len(events)} of {count} events in time")


def _events_of(message: ChannelMessage) -> list[StreamEvent]:
    """The events of a message; its MeshError if it can't be read."""
    from mesh.mapping.messages import decode
    from mesh.model.names import EVENT_TIME_HEADER

    time_ms = (message.headers or {}).get(EVENT_TIME_HEADER, "")
    at_ms = int(time_ms) if time_ms.isascii() and time_ms.isdigit() else message.time_ms
    return [
        StreamEvent(one, at_ms, message.subject, message.sequence)
        for one in decode(message.data, message.content_type or "")
    ]


def checked(context: ClientContext) -> ClientContext:
    """The context, if it names NATS; otherwise MESH-U111."""
    if not context.nats:
        raise MeshError(
            "MESH-U111",
            "no NATS named",
            hint="--nats or MESH_NATS_URL names it; 'mesh dev' writes it into the context file.",
        )
    return context


def subject_of(context: ClientContext, app: str, stream: str) -> str:
    """The subject of a stream in the mesh of a context.

    Raises:
        MeshError: MESH-U121 for names that can't be; MESH-U105 if the process belongs to another
            mesh already.
    """
    from mesh import mesh_name

    if context.mesh and context.mesh != mesh_name.of_process():
        mesh_name.use_first(context.mesh)
    from mesh.model import names

    if not names.is_app_name(app):
        raise MeshError("MESH-U121", f'"{app}" can\'t be the name of an app in NATS')
    if not stream.isidentifier():
        raise MeshError(
            "MESH-U121",
            f'"{stream}" can\'t be a stream of app "{app}" in NATS',
            hint="Streams with ! and # stay inside of their groups: insert their events into "
            "another one."
            if stream[:1] in ("!", "#")
            else None,
        )
    return names.subject(app, stream)


async def publish(
    context: ClientContext, app: str, stream: str, events: Iterable[Event], time: str
) -> int:
    """Publish events to a stream; returns their number.

    Args:
        context: the cluster.
        app: the app.
        stream: its stream.
        events: values by attribute, or the bytes of a JSON object.
        time: the attribute with the time of the event; empty for the server's.

    Raises:
        MeshError: MESH-A404 if the app is not deployed, MESH-N111 if no channel takes them,
            MESH-N112 if one is not accepted, MESH-U124 for an event without a time.
        TypeError: one event in place of several, or a value that JSON does not have.
    """
    from mesh.client import wire
    from mesh.client.deployed import why_refused

    if isinstance(events, str | bytes | Mapping):
        raise TypeError("events is an iterable of events: [event] publishes one")
    subject = subject_of(context, app, stream)
    from mesh.model.names import EVENT_TIME_HEADER

    async with wire.connected(checked(context)) as client:
        publisher = wire.EventPublisher(client, subject)
        try:
            for event in events:
                data = event if isinstance(event, bytes) else _json(event, publisher.stored)
                headers = {EVENT_TIME_HEADER: _time(data, time)} if time else None
                await publisher.send(data, headers)
            await publisher.settle()
        except wire.NoStreamError as error:
            misnamed = None if publisher.stored else await why_refused(client, app, stream)
            raise misnamed or MeshError(
                "MESH-N111",
                f'no channel takes "{subject}"',
                detail=_stored(publisher.stored) if publisher.stored else None,
                hint=f'Is the app deployed, and does it define and read "{stream}"? mesh apps',
            ) from error
        except (wire.EventRefusedError, TimeoutError) as error:
            reason = f"{str(error) or 'No answer in time'}. {_stored(publisher.stored)}"
            raise MeshError("MESH-N112", "events were not accepted", detail=reason) from error
    return publisher.stored


def publish_blocking(
    context: ClientContext, app: str, stream: str, events: Iterable[Event], time: str
) -> int:
    """As ``publish``, also where an event loop runs already."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, publish(context, app, stream, events, time)).result()


def _stored(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'} stored before."


def _json(event: JsonMapping, stored: int) -> bytes:
    try:
        return orjson.dumps(event)
    except TypeError as error:
        raise TypeError(f"an event is no JSON object: {error}; {_stored(stored)}") from error


def _time(data: bytes, name: str) -> str:
    try:
        return str(int(orjson.loads(data)[name]))
    except (ValueError, KeyError, TypeError) as error:
        raise MeshError(
            "MESH-U124", f'event has no time in "{name}"', detail=f"{data[:100]!r}."
        ) from error
