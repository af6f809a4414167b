"""The history of metrics by the minute and by ten minutes, as a JetStream stream.

A message has the rows of many series for one step.  It expires with the history of its step, and
the oldest messages leave when the stream is full.  The stream is made with the first message.
"""

from __future__ import annotations

import logging
import zlib
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson
from nats.js.errors import NotFoundError

from mesh.jetstream.connection import api_call
from mesh.model import names
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from nats.aio.client import Client

log = logging.getLogger(__name__)

#: Series of one message, and bytes of one that is unpacked.
SERIES_MAX: Final = 1000
_BYTES_MAX: Final = 8 << 20
#: Time limit of one call, and age of the oldest message, seconds.
_CALL_S: Final = 5.0
_MAX_AGE_S: Final = 7 * 86_400
#: Name is in use: another manager has just made it.
_NAME_IN_USE: Final = 10058


@dataclass(eq=False, repr=False)
class MetricsHistoryStore:
    """Stores rows, and reads them back."""

    _client: Client
    _replicas: int
    #: Bound of the stream; 0: nothing is stored.
    _bytes_max: int
    _has_stream: bool = False

    async def put(
        self,
        step_s: int,
        ttl_s: int,
        at_s: int,
        rows: Mapping[tuple[str, str], Sequence[float]],
    ) -> None:
        """Store the rows of one step; those that are stored already count once.

        Args:
            step_s: length of the step, seconds.
            ttl_s: time after which the message expires, seconds.
            at_s: start of the step, seconds since 1970.
            rows: by kind and name of the series.
        """
        if not self._bytes_max or not rows or not await self._make():
            return
        js = self._client.jetstream()
        series = list(rows.items())
        for number, start in enumerate(range(0, len(series), SERIES_MAX)):
            some = series[start : start + SERIES_MAX]
            headers = {"Nats-Msg-Id": f"{step_s}-{at_s}-{number}", "Nats-TTL": f"{ttl_s}s"}
            await js.publish(
                names.history_subject(step_s), packed(step_s, at_s, some), headers=headers
            )

    async def read(
        self,
    ) -> AsyncIterator[tuple[int, int, dict[tuple[str, str], Sequence[float]]]]:
        """Step, start and rows of each message, in order; none without a stream."""
        js = self._client.jetstream()
        try:
            left = (await js.stream_info(names.HISTORY_STREAM)).state.messages
        except NotFoundError:
            return
        if not left:
            return
        subscription = await js.subscribe(
            names.history_subject("*"), stream=names.HISTORY_STREAM, ordered_consumer=True
        )
        try:
            while left:
                message = await subscription.next_msg(_CALL_S)
                left = message.metadata.num_pending
                try:
                    record = unpacked(message.data)
                except (ValueError, TypeError, KeyError, zlib.error) as error:
                    log.debug("stored history not readable", extra=fields(error=error))
                    continue
                yield record
        finally:
            await subscription.unsubscribe()

    async def _make(self) -> bool:
        """Make the stream, or give it its present bound; whether it is there."""
        if self._has_stream:
            return True
        config = {
            "name": names.HISTORY_STREAM,
            "subjects": [names.history_subject("*")],
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "num_replicas": self._replicas,
            "max_age": _MAX_AGE_S * 10**9,
            "max_bytes": self._bytes_max,
            "max_msgs": -1,
            "duplicate_window": 120 * 10**9,
            "allow_msg_ttl": True,
        }
        error = await self._call("CREATE", config)
        if error.get("err_code") == _NAME_IN_USE:
            error = await self._call("UPDATE", config)
        if error:
            # Most likely the account has no room to reserve; it is tried again in a minute.
            log.warning(
                "stream of the history not made; see manager.history_stored_bytes_max",
                extra=fields(error=error),
            )
        self._has_stream = not error
        return self._has_stream

    async def _call(self, call: str, config: Mapping[str, object]) -> dict[str, object]:
        subject = f"STREAM.{call}.{names.HISTORY_STREAM}"
        answer = await api_call(self._client, subject, config, _CALL_S)
        error: dict[str, object] = answer.get("error") or {}
        return error


def packed(
    step_s: int, at_s: int, rows: Sequence[tuple[tuple[str, str], Sequence[float]]]
) -> bytes:
    """A message: a line of JSON that names the series, then all rows as 32-bit floats."""
    series = [[*key, len(row)] for key, row in rows]
    head = orjson.dumps({"step_s": step_s, "at_s": at_s, "series": series})
    values = array("f", [value for _, row in rows for value in row])
    return zlib.compress(head + b"\n" + values.tobytes(), 6)


def unpacked(message: bytes) -> tuple[int, int, dict[tuple[str, str], Sequence[float]]]:
    """Step, start and rows of a message; ValueError and others for one that is none."""
    opened = zlib.decompressobj()
    head, _, rest = opened.decompress(message, _BYTES_MAX).partition(b"\n")
    values = array("f")
    values.frombytes(rest)
    named = orjson.loads(head)
    rows: dict[tuple[str, str], Sequence[float]] = {}
    start = 0
    for kind, name, width in named["series"]:
        rows[str(kind), str(name)] = values[start : start + width]
        start += width
    return int(named["step_s"]), int(named["at_s"]), rows
