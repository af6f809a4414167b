"""Compare-and-set writes of keys, guarded by the key's own revision or by the lease's.

A key's own revision does not fence a deposed leader: the record it wants to write may not have
changed since it lost the lease.  So a leader's write expects the revision of the *lease*.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import orjson
from nats.js import api
from nats.js.errors import APIError, BucketNotFoundError, NotFoundError

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
OPERATION: Final = "KV-Operation"
#: Of a message that the server leaves in the place of one that has expired.
MARKER: Final = "Nats-Marker-Reason"
#: Keys read at once.
_READS: Final = 32

#: A contended replicated bucket may answer 10164 where a quiet one answers 10071.
_CONFLICTS: Final = (10071, 10164)
#: Timeout of an answer with subjects, seconds.
_LIST_S: Final = 20.0


class BucketMissingError(BucketNotFoundError):
    """NATS does not have a bucket of the mesh: it was deleted."""

    def __init__(self, bucket: str) -> None:
        super().__init__()
        self.bucket = bucket

    def __str__(self) -> str:
        return f"NATS has no bucket {self.bucket}; the managers make it again [MESH-N127]"


class RevisionConflict(Exception):
    """Another writer was first: read and decide again."""


def subject(bucket: str, key: str) -> str:
    """Subject of a key of a bucket."""
    return f"$KV.{bucket}.{key}"


async def write(
    js: JetStreamContext,
    bucket: str,
    key: str,
    value: bytes | None,
    *,
    revision: int,
    fenced_by: str | None = None,
) -> int:
    """Write or, with None, delete a key, if the expectation holds.

    Args:
        js: the connection.
        bucket: of the key.
        key: what is written.
        value: None deletes.
        revision: what the last revision must be, 0 for a key that isn't there.
        fenced_by: the key whose revision is meant; ``key`` itself when None.

    Returns:
        The revision of what was written.

    Raises:
        RevisionConflict: the expectation didn't hold.
    """
    headers = {EXPECTED: str(revision)}
    if fenced_by is not None:
        headers[EXPECTED_SUBJECT] = subject(bucket, fenced_by)
    if value is None:
        headers[OPERATION] = "DEL"
    try:
        ack = await js.publish(subject(bucket, key), value or b"", headers=headers)
    except APIError as error:
        if error.err_code in _CONFLICTS:
            raise RevisionConflict(f"{bucket}/{key} is not at revision {revision}") from error
        raise
    return ack.seq


async def put(js: JetStreamContext, bucket: str, key: str, value: bytes | None) -> int:
    """Write or delete a key that has no other writer."""
    headers = {OPERATION: "DEL"} if value is None else None
    ack = await js.publish(subject(bucket, key), value or b"", headers=headers)
    return ack.seq


async def last(js: JetStreamContext, bucket: str, key: str) -> tuple[int, bytes]:
    """The revision of a key, and its value, empty if it was deleted; 0 for one never written."""
    try:
        message = await js.get_last_msg(f"KV_{bucket}", subject(bucket, key), direct=False)
    except NotFoundError:
        return 0, b""
    return message.seq or 0, message.data or b""


async def open_bucket(js: JetStreamContext, bucket: str) -> KeyValue:
    """A bucket of the mesh; BucketMissingError if it was deleted."""
    try:
        return await js.key_value(bucket)
    except NotFoundError as error:
        raise BucketMissingError(bucket) from error


async def ensure_bucket(
    js: JetStreamContext, bucket: str, replicas: int, age_s: float | None = None
) -> KeyValue:
    """A bucket, made if it is not there; with ``age_s``, keys go when they are older."""
    try:
        return await js.key_value(bucket)
    except (BucketNotFoundError, NotFoundError):
        config = api.KeyValueConfig(bucket=bucket, replicas=replicas, ttl=age_s)
        return await js.create_key_value(config)


def is_at_end(info: api.ConsumerInfo, received: int) -> bool:
    """Whether a consumer has nothing more to deliver after its message ``heard``, 0 for none.

    A message says how many are pending after it.  If those are removed before they are delivered,
    none ever says that it is the last.
    """
    delivered = info.delivered.consumer_seq if info.delivered else 0
    return not info.num_pending and delivered == received


async def entries(
    js: JetStreamContext, bucket: str, prefix: str = ""
) -> dict[str, api.RawStreamMsg]:
    """The last messages of keys that start with ``prefix``, sorted by key, without deleted ones.

    None at all without a bucket.

    Each key is asked of the stream's leader, so a write that was acknowledged is seen.  A watch of
    nats-py is no list: it may end before its first entry or wait without end, as its count of what
    is pending and the entries come apart (``KeyValue.watch``: ``num_pending``, ``delivered``).
    """
    stream, start = f"KV_{bucket}", subject(bucket, "")
    gate = asyncio.Semaphore(_READS)

    async def read(one: str) -> tuple[str, api.RawStreamMsg] | None:
        async with gate:
            try:
                message = await js.get_last_msg(stream, one, direct=False)
            except NotFoundError:
                return None
        is_deleted = (message.headers or {}).keys() & {OPERATION, MARKER}
        return None if is_deleted else (one.removeprefix(start), message)

    try:
        subjects = sorted(await subjects_of(js, stream, f"{start}{prefix}>"))
    except NotFoundError:
        return {}
    return dict(filter(None, await asyncio.gather(*map(read, subjects))))


async def subjects_of(js: JetStreamContext, stream: str, pattern: str) -> list[str]:
    """The subjects that ``pattern`` matches and that have messages; NotFoundError without a stream.

    The server gives 100,000 at a time.
    """
    subjects: list[str] = []
    while True:
        query = orjson.dumps({"subjects_filter": pattern, "offset": len(subjects)})
        call = f"{js._prefix}.STREAM.INFO.{stream}"
        info = await js._api_request(call, query, timeout=_LIST_S)
        some = info["state"].get("subjects") or {}
        subjects += some
        if not some or len(subjects) >= info.get("total", 0):
            return subjects
