"""Calls of the JetStream API that the connector needs, over a synchronous connection."""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol.connection import REQUEST_S as REQUEST_S
from pyspark_nats.protocol.connection import DisconnectedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_nats.json_types import JsonObject
    from pyspark_nats.protocol.connection import Connection, Reply

NO_MESSAGE: Final = 10037
STREAM_NOT_FOUND: Final = 10059
#: A failed expectation; a contended replicated stream may report 10164 instead of 10071.
WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})

#: Prefixes of the status of a pull request that was served as far as possible.
SERVED: Final = ("Batch Completed", "Message Size Exceeds MaxBytes")

#: Limits of a stream that always holds what was stored in the last seconds.
_RECENT_BYTES: Final = 1 << 30
_RECENT_NS: Final = 60_000_000_000

#: In the year 2255: the server counts nanoseconds, and later times wrap around into the past.
TIME_MAX_MS: Final = 9_000_000_000_000

_TIME = re.compile(r"(.*?)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)\Z")


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as its leader described it."""

    name: str
    #: First stored sequence; ``last + 1`` without messages.
    first: int
    last: int
    #: Broker time of the first message; ``time_ms`` without messages.
    first_ms: int
    #: The server's clock when it answered.
    time_ms: int
    created_ms: int
    subjects: tuple[str, ...]
    #: Whether its messages are copied from other streams, and may be older than the stream.
    is_copy: bool
    allow_atomic: bool
    allow_direct: bool
    messages: int
    #: Size of all messages, with their subjects and headers.
    bytes: int
    #: Broker time of message ``last``, ns since 1970; 0 if there never was one.
    last_ns: int = 0
    #: Whether it takes ingest batches (ADR-50), and one server stores it.
    allow_ingest: bool = False
    #: Whether it keeps the messages of some seconds, whatever is stored meanwhile.
    keeps_recent: bool = False
    #: The server of a cluster that leads it, and since when; empty for a server alone.
    leader: str = ""
    #: Most octets of a message with its headers, by its own limit; 0 for none.
    message_bytes_max: int = 0

    @property
    def message_bytes(self) -> float:
        """Bytes of an average message."""
        return self.bytes / self.messages if self.messages else 0.0


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as stored in a stream."""

    subject: str
    sequence: int
    time_ns: int
    data: bytes

    @property
    def time_ms(self) -> int:
        """Broker time, ms since 1970, rounded down."""
        return self.time_ns // 1_000_000


def time_ms(text: str) -> int:
    """Milliseconds since 1970, rounded down, of an RFC 3339 time with nanoseconds."""
    return time_ns(text) // 1_000_000


def time_ns(text: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 time."""
    match = _TIME.match(text)
    if match is None:
        raise ValueError(f"not a time: {text!r}")
    zone = "+00:00" if match[3] == "Z" else match[3]
    seconds = int(datetime.fromisoformat(match[1] + zone).timestamp())
    return seconds * 1_000_000_000 + int((match[2] or "0").ljust(9, "0")[:9])


def stream_infos(connection: Connection, streams: Sequence[str]) -> dict[str, StreamInfo]:
    """Describe ``streams``, all in one round trip.

    Raises:
        RefusedError: a stream does not exist.
    """
    replies = connection.requests(
        [(connection.api(f"STREAM.INFO.{name}"), b"") for name in streams]
    )
    return {name: info(name, reply) for name, reply in zip(streams, replies, strict=True)}


def server_ms(connection: Connection, stream: str) -> int:
    """The time of the server that leads a stream, ms since 1970; waits for an answer.

    Raises:
        RefusedError: the stream does not exist; UnavailableError: no answer in time.
    """
    call = (connection.api(f"STREAM.INFO.{stream}"), b"")
    (reply,) = connection.retry_while_unavailable(
        "asking for the time", lambda: connection.requests([call])
    )
    return time_ms(answered(reply, stream)["ts"])


def answered(reply: Reply, stream: str) -> JsonObject:
    """The payload of an answer about ``stream``; the error names it if it does not exist."""
    try:
        return reply.json()
    except RefusedError as error:
        if error.err_code == STREAM_NOT_FOUND:
            raise RefusedError(
                f'JetStream stream "{stream}" does not exist',
                hint="Create it first, or check its name and the account.",
                err_code=STREAM_NOT_FOUND,
            ) from error
        raise


def info(name: str, reply: Reply) -> StreamInfo:
    """The description of a stream in an answer.

    Raises:
        RefusedError: it does not exist; DisconnectedError: a temporary error.
    """
    answer = answered(reply, name)
    state, config, cluster = answer["state"], answer["config"], answer.get("cluster") or {}
    last, messages = int(state["last_seq"]), int(state["messages"])
    now_ms = time_ms(answer["ts"])
    return StreamInfo(
        name=name,
        first=int(state["first_seq"]) if messages else last + 1,
        last=last,
        first_ms=time_ms(state["first_ts"]) if messages else now_ms,
        time_ms=now_ms,
        created_ms=time_ms(answer["created"]),
        subjects=tuple(config.get("subjects") or ()),
        is_copy=bool(config.get("mirror") or config.get("sources")),
        allow_atomic=bool(config.get("allow_atomic")),
        allow_direct=bool(config.get("allow_direct")),
        messages=messages,
        bytes=int(state["bytes"]),
        last_ns=time_ns(state["last_ts"]) if last else 0,
        allow_ingest=bool(config.get("allow_batched")) and config.get("num_replicas", 1) == 1,
        keeps_recent=_keeps_recent(config),
        leader=f"{cluster.get('leader', '')} {cluster.get('leader_since', '')}".strip(),
        message_bytes_max=max(0, int(config.get("max_msg_size", -1))),
    )


def _keeps_recent(config: JsonObject) -> bool:
    is_bounded = any(config.get(name, -1) > 0 for name in ("max_msgs", "max_msgs_per_subject"))
    return (
        config.get("retention") == "limits"
        and config.get("discard") == "old"
        and not is_bounded
        and not 0 < config.get("max_bytes", -1) < _RECENT_BYTES
        and not 0 < config.get("max_age", 0) < _RECENT_NS
    )


def stream_of(connection: Connection, subject: str) -> str | None:
    """The stream that captures ``subject``; None without one."""
    query = json.dumps({"subject": subject}).encode()
    names = connection.requests([(connection.api("STREAM.NAMES"), query)])[0].json().get("streams")
    return str(names[0]) if names else None


def next_message(
    connection: Connection, stream: str, sequence: int, subject: str = ">"
) -> StoredMessage | None:
    """The first message at or after ``sequence`` on ``subject``, according to the stream's leader.

    Args:
        connection: to a server.
        stream: the stream.
        sequence: at least 1; 0 counts as 1.
        subject: wildcards allowed.
    """
    return _get(connection, stream, {"seq": max(1, sequence), "next_by_subj": subject})


def message(connection: Connection, stream: str, sequence: int) -> StoredMessage | None:
    """The message at ``sequence``, according to the stream's leader; None if it is deleted."""
    return _get(connection, stream, {"seq": sequence})


def message_at(connection: Connection, stream: str, moment_ms: int) -> StoredMessage | None:
    """The first message that is not older than ``moment_ms`` (ms since 1970)."""
    moment_ms = min(moment_ms, TIME_MAX_MS)
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    # The server uses the first nanosecond of the millisecond.
    text = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment_ms % 1000:03d}Z"
    return _get(connection, stream, {"start_time": text})


def last_messages(
    connection: Connection, pairs: Sequence[tuple[str, str]]
) -> list[StoredMessage | None]:
    """The last message of each (stream, subject), as the stream's leader knows it."""
    replies = connection.requests(
        [
            (
                connection.api(f"STREAM.MSG.GET.{stream}"),
                json.dumps({"last_by_subj": subject}).encode(),
            )
            for stream, subject in pairs
        ]
    )
    return [_stored(reply, stream) for (stream, _), reply in zip(pairs, replies, strict=True)]


def _get(connection: Connection, stream: str, query: JsonObject) -> StoredMessage | None:
    call = (connection.api(f"STREAM.MSG.GET.{stream}"), json.dumps(query).encode())
    return _stored(connection.requests([call])[0], stream)


def _stored(reply: Reply, stream: str) -> StoredMessage | None:
    try:
        message = answered(reply, stream)["message"]
    except RefusedError as error:
        if error.err_code == NO_MESSAGE:
            return None
        raise
    return StoredMessage(
        subject=message["subject"],
        sequence=int(message["seq"]),
        time_ns=time_ns(message["time"]),
        data=base64.b64decode(message.get("data", "")),
    )


def purge(connection: Connection, stream: str, subject: str, *, keep: int = 0) -> None:
    """Delete the messages of ``subject`` (wildcards allowed) but the last ``keep``."""
    query = json.dumps({"filter": subject, **({"keep": keep} if keep else {})}).encode()
    answered(connection.requests([(connection.api(f"STREAM.PURGE.{stream}"), query)])[0], stream)


@dataclass(frozen=True, slots=True)
class ReadConsumer:
    """A consumer for one read."""

    name: str
    #: Number of messages from its start to the end of the stream.
    pending: int
    #: The server of a cluster that has it; empty for a server alone.
    server: str = ""


def create_reader(
    connection: Connection,
    stream: str,
    sequence: int,
    subjects: Sequence[str] = (),
    timeout_s: float = REQUEST_S,
) -> ReadConsumer:
    """Create a consumer that reads from ``sequence`` on without acks.

    It is in memory and expires half a minute after its last use.

    Args:
        connection: to a server.
        stream: the stream to read.
        sequence: the first.
        subjects: filters; patterns that do not overlap.  None for every subject.
        timeout_s: of the answer, which needs the cluster's leader.
    """
    # It is part of the reply subject of every message: short, and unique in its stream.
    name = f"r{os.urandom(6).hex()}"
    config: JsonObject = {
        "name": name, "deliver_policy": "by_start_sequence", "opt_start_seq": sequence,
        "ack_policy": "none", "mem_storage": True, "num_replicas": 1,
        "inactive_threshold": 30_000_000_000,
    }  # fmt: skip
    if len(subjects) == 1:
        config["filter_subject"] = subjects[0]
    elif subjects:
        config["filter_subjects"] = list(subjects)
    call = json.dumps({"stream_name": stream, "config": config}).encode()
    subject = connection.api(f"CONSUMER.CREATE.{stream}.{name}")
    if len(subjects) == 1:
        # With the long form an account can permit readers by their filters.
        subject = f"{subject}.{subjects[0]}"
    answer = answered(connection.requests([(subject, call)], timeout_s)[0], stream)
    server = (answer.get("cluster") or {}).get("leader", "")
    return ReadConsumer(name, int(answer.get("num_pending", 0)), str(server))


def delete_reader(connection: Connection, stream: str, name: str) -> None:
    """Delete a consumer; neither its absence nor a missing answer is an error."""
    try:
        connection.requests([(connection.api(f"CONSUMER.DELETE.{stream}.{name}"), b"")])[0].json()
    except (RefusedError, DisconnectedError):
        # The consumer expires on its own.
        return
