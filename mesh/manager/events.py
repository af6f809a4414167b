"""Events that a manager handles for people: failed ones, and ones sent for a test."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import orjson
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError
from nats.js.errors import NoStreamResponseError

from mesh.control.journal import JournalEntry
from mesh.errors import MeshError
from mesh.jetstream import failed
from mesh.jetstream.connection import unreachable
from mesh.manager.streams import channel_of
from mesh.model import names
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from nats.aio.client import Client

    from mesh.model.app import AppSpec
    from mesh.model.error_entry import SimulatedEvent
    from mesh.model.values import JsonObject

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Most entries that one call for all entries replays or discards; further calls do the rest.
AT_ONCE: Final = 1000
#: Age at which the numbers of all apps are read again, seconds.
COUNTS_S: Final = 2.0
#: Most bytes of the head of an event for a test.
_HEAD_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Result of a replay or a discard."""

    app: str
    #: Of the entries replayed, or discarded.
    ids: tuple[int, ...]
    #: Number of entries that are left.
    left: int


@dataclass(eq=False, repr=False)
class AppEvents:
    """Calls on an app's events; all raise MESH-A404 for an app that is not there."""

    _client: Client
    #: An app's spec; raises MESH-A404 for one that is not deployed.
    _app: Callable[[str], AppSpec]
    _note: Callable[[JournalEntry], None]
    _now_ms: Callable[[], int]

    def __post_init__(self) -> None:
        self._js = self._client.jetstream()
        self._counter = failed.FailedCounts(self._client)
        self._counts: Mapping[str, int] = {}
        self._counted_s = -math.inf

    async def failed_count(self, app: str) -> int:
        """Number of failed events of an app."""
        self._app(app)
        return await _answer_of(failed.count_entries(self._js, app))

    async def failed_counts(self) -> Mapping[str, int]:
        """Numbers of failed events by app, at most ``COUNTS_S`` old; apps without are absent.

        Those last known while NATS can't be reached.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._counted_s + COUNTS_S:
            try:
                self._counts = await _answer_of(self._counter.read())
            except MeshError as error:
                log.debug("failed events not counted: %s", error)
            self._counted_s = now_s
        return self._counts

    async def failed(self, app: str, limit: int, before: int | None = None) -> list[JsonObject]:
        """The last ``limit`` failed events with an id below ``before``, oldest first."""
        self._app(app)
        return await _answer_of(failed.last_entries(self._js, app, limit, before))

    async def failed_one(self, app: str, id_: int) -> JsonObject:
        """A failed event; MESH-A404."""
        self._app(app)
        return await _answer_of(failed.entry_of(self._js, app, id_))

    async def replay(
        self,
        app: str,
        ids: Sequence[int] | None,
        data: bytes | None = None,
        *,
        by: str = "",
        to_stream: bool = False,
    ) -> ReplayResult:
        """Send failed events again, and delete their entries.

        What a source or sink has refused goes to that alone; all else to its stream.

        Args:
            app: the app.
            ids: of the entries; None for the oldest ``AT_ONCE``.
            data: JSON to send in the place of the only one of ``ids``.
            by: the user.
            to_stream: all of them go to their streams, to all readers.

        Raises:
            MeshError: MESH-A404 for an entry that is not there, MESH-A422 for one that can't be
                sent as it was, MESH-A503 for a sink that is away.  Those before it are replayed.
        """
        streams = {channel.stream.name for channel in self._app(app).channels}
        done: list[int] = []
        try:
            for id_ in await self._ids(app, ids):
                entry = await _answer_of(failed.entry_of(self._js, app, id_))
                if entry.get("connector") and not to_stream:
                    await _answer_of(failed.send(self._client, app, entry, data))
                    await _answer_of(failed.discard(self._js, app, id_))
                else:
                    await _answer_of(failed.replay(self._js, app, id_, streams, data))
                done.append(id_)
        finally:
            self._tell("replayed", app, done, by)
        return ReplayResult(app, tuple(done), await self.failed_count(app))

    async def discard(self, app: str, ids: Sequence[int] | None, *, by: str = "") -> ReplayResult:
        """Delete failed events: ``ids``, or the oldest ``AT_ONCE``."""
        self._app(app)
        done = [
            id_
            for id_ in await self._ids(app, ids)
            if await _answer_of(failed.discard(self._js, app, id_))
        ]
        self._tell("discarded", app, done, by)
        return ReplayResult(app, tuple(done), await self.failed_count(app))

    async def discard_older(self, app: str, age_s: float, *, by: str = "") -> int:
        """Delete events that failed longer than ``age_s`` ago; returns how many."""
        self._app(app)
        before_ms = self._now_ms() - round(age_s * 1000)
        count = await _answer_of(failed.discard_older(self._js, app, before_ms))
        if count:
            self._counted_s = -math.inf
            self._note(JournalEntry(f"discarded {count} failed events", "too old", by=by, app=app))
        return count

    def check(self, app: str, event: SimulatedEvent) -> None:
        """Refuse an event that no reader of its stream could read.

        Raises:
            MeshError: MESH-A400 for an attribute that is missing, not known, or of another type.
        """
        spec = self._app(app)
        _payload(spec, event)
        attributes, data = channel_of(spec, event.stream).stream.attributes, event.data
        values = data if isinstance(data, list) else [data[one.name] for one in attributes]
        for one, value in zip(attributes, values, strict=True):
            if not _is_of(value, one.type):
                shown = orjson.dumps(value).decode()[:80]
                article = "an" if one.type[0] in "aeiou" else "a"
                raise MeshError(
                    "MESH-A400",
                    f'attribute "{one.name}" is {shown}, not {article} {one.type}',
                    hint="Texts have quotes; numbers, true and false have none.",
                )

    async def send(
        self, app: str, events: Sequence[SimulatedEvent], *, keys: Sequence[str] = ()
    ) -> int:
        """Publish events for a test, in order; how many.

        Args:
            app: the app.
            events: of its streams.
            keys: ids by which the broker drops repeats; none without them.

        Raises:
            MeshError: MESH-A400 for one that does not fit its stream, before any is sent.
        """
        spec = self._app(app)
        payloads = [_payload(spec, event) for event in events]
        if max(map(len, payloads), default=0) > self._client.max_payload - _HEAD_BYTES:
            raise _too_large()
        for event, payload, key in zip(events, payloads, keys or [""] * len(events), strict=True):
            headers = {"Nats-Msg-Id": key} if key else {}
            if event.time_ms is not None:
                headers[names.EVENT_TIME_HEADER] = str(event.time_ms)
            subject = names.subject(app, event.stream)
            try:
                await _answer_of(self._js.publish(subject, payload, headers=headers or None))
            except NoStreamResponseError as error:
                raise MeshError(
                    "MESH-A404",
                    f'no channel of app "{app}" takes events for stream "{event.stream}"',
                    hint="Only streams that some group reads or writes are on the wire.",
                ) from error
        return len(events)

    async def _ids(self, app: str, ids: Sequence[int] | None) -> Sequence[int]:
        if ids is not None:
            return ids
        return await _answer_of(failed.first_ids(self._js, app, AT_ONCE))

    def _tell(self, what: str, app: str, ids: Sequence[int], by: str) -> None:
        if ids:
            self._counted_s = -math.inf
            shown = ", ".join(map(str, ids[:5])) + (", .." if len(ids) > 5 else "")
            text = f"{what} {len(ids)} failed events ({shown})"
            self._note(JournalEntry(text, by=by and f"user {by}", app=app))


def _payload(spec: AppSpec, event: SimulatedEvent) -> bytes:
    """The event as JSON; MESH-A400 when it does not fit its stream."""
    attributes = channel_of(spec, event.stream).stream.names
    values = event.data
    if isinstance(values, list):
        if len(values) != len(attributes):
            raise MeshError(
                "MESH-A400",
                f'an event of stream "{event.stream}" has {len(attributes)} values, '
                f"not {len(values)}",
                detail=f"Its attributes are: {', '.join(attributes)}.",
            )
        values = dict(zip(attributes, values, strict=True))
    missing = [name for name in attributes if name not in values]
    unknown = [name for name in values if name not in attributes]
    if missing or unknown:
        reasons = [f"{', '.join(missing)} missing"] if missing else []
        reasons += [f"{', '.join(unknown)} not known"] if unknown else []
        raise MeshError(
            "MESH-A400",
            f'an event does not fit stream "{event.stream}": {"; ".join(reasons)}',
            detail=f"Its attributes are: {', '.join(attributes)}.",
        )
    return orjson.dumps(values)


def _is_of(value: object, kind: AttributeType) -> bool:
    """Whether a value of JSON may be one of an attribute; docs/types.md has the rules."""
    match value:
        case None:
            return True
        case bool():
            return kind in (AttributeType.BOOL, AttributeType.OBJECT)
        case int():
            bits = {AttributeType.INT: 31, AttributeType.LONG: 63}.get(kind)
            is_real = kind in (AttributeType.FLOAT, AttributeType.DOUBLE, AttributeType.OBJECT)
            return is_real or (bits is not None and -(1 << bits) <= value < 1 << bits)
        case float():
            return kind in (AttributeType.FLOAT, AttributeType.DOUBLE, AttributeType.OBJECT)
        case str():
            return kind in (AttributeType.STRING, AttributeType.OBJECT)
        case _:
            # A text has lists and objects as JSON, of which the app may make an object.
            return kind in (AttributeType.OBJECT, AttributeType.STRING)


def _too_large() -> MeshError:
    return MeshError(
        "MESH-A413",
        "an event is larger than a message of NATS may be",
        hint="max_payload of the NATS servers is the limit.",
    )


async def _answer_of(call: Awaitable[T]) -> T:
    """The answer of NATS; MESH-A503 when there is none."""
    try:
        return await call
    except NoStreamResponseError:
        raise
    except MaxPayloadError as error:
        raise _too_large() from error
    except (TimeoutError, NatsError, OSError) as error:
        raise unreachable(error) from error
