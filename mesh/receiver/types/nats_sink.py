"""Sink ``nats``: subjects of any server; ``Nats-Msg-Id`` is the record's key."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from nats.errors import Error as NatsError
from nats.js.errors import APIError, NoStreamResponseError
from nats.js.errors import Error as JetStreamError

from mesh.connect.contract import UnavailableError
from mesh.connect.spec import Kind, value_of
from mesh.receiver.nats_server import connect
from mesh.receiver.outcomes import outcomes_of
from mesh.receiver.publisher import Publisher
from mesh.telemetry import traces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping

_TIMEOUT_S: Final = 5.0
#: Bytes of a subject: with its reply it is in one line, of which a server takes 4096.
_SUBJECT_MAX: Final = 2048
#: A token of a subject with attributes.
_TOKEN: Final = re.compile(r"[^.]*\{\{[^.]*")
_NO_SUBJECT: Final = re.compile(r"[\x00-\x20\x7f*>]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
#: Name of a header.
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: Bytes of a message's headers besides them.
_HEAD: Final = 64
#: Error codes: the message is larger than the stream takes; its headers are larger than 64 KiB.
_TOO_LARGE: Final = (10054, 10097)
#: Status of a message that the stream refuses, and the code of one with it that will pass: the
#: account is full.
_REFUSED: Final = 400
_FULL: Final = 10002
_FAILURES: Final = (NatsError, JetStreamError, OSError, TimeoutError)


def is_subject(text: str) -> bool:
    """Whether a message may have this subject."""
    if not text or len(text.encode()) > _SUBJECT_MAX or ".." in f".{text}.":
        return False
    return not _NO_SUBJECT.search(text)


class NatsSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self._client: Client | None = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Connect to the servers of the options."""
        self._options = context.options
        self._type = context.content_type
        self._client = await connect(context, "sink")
        self._publisher = Publisher(self._client)
        await self._publisher.open()

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Publish in order with many acks in flight, and wait for all of them."""
        assert self._client is not None
        results: list[str | BaseException | None] = []
        acks: dict[int, asyncio.Future[int]] = {}
        for at, record in enumerate(records):
            try:
                one = await self._send(record)
            except Exception as error:
                results.append(error)
                continue
            if isinstance(one, asyncio.Future):
                acks[at], one = one, None
            results.append(one)
        answers = await asyncio.gather(*acks.values(), return_exceptions=True)
        is_stored = False
        if any(isinstance(answer, NoStreamResponseError) for answer in answers):
            is_stored = await self._has_stream()
        for at, answer in zip(acks, answers, strict=True):
            if isinstance(answer, BaseException):
                results[at] = self._outcome(records[at], answer, is_stored=is_stored)
        if not self._options.get("acks"):
            try:
                await self._client.flush(int(_TIMEOUT_S))
            except _FAILURES as error:
                # Nothing says which of them have left.
                results = [error if one is None else one for one in results]
        return outcomes_of(results, is_lost=self._client.is_closed)

    def _outcome(
        self, record: Record, answer: BaseException, *, is_stored: bool
    ) -> str | BaseException:
        """The outcome of a record by its answer; ``is_stored``: streams have other subjects."""
        if isinstance(answer, APIError):
            is_refused = answer.code == _REFUSED and answer.err_code != _FULL
            # A refusal by what the text gives to all events is tried again: its cause may pass.
            if answer.err_code in _TOO_LARGE or (record.options and is_refused):
                return f"{self._subject(record)}: {answer.description}"
        if not isinstance(answer, NoStreamResponseError):
            return answer
        reason = "no stream stores the subject; acks='false' sends without one"
        if record.options and is_stored:
            return f"{self._subject(record)}: {reason}"
        # The operator may make one.
        return UnavailableError(reason)

    async def _has_stream(self) -> bool:
        """Whether a stream stores some of the subjects that events may have."""
        assert self._client is not None
        subjects = _TOKEN.sub("*", str(self._options.get("destination") or ""))
        try:
            await self._client.jetstream().find_stream_name_by_subject(subjects)
        except (*_FAILURES, ValueError):
            return False
        return True

    async def _send(self, record: Record) -> asyncio.Future[int] | str | None:
        """The ack to come, the reason why the record is refused, or None without acks."""
        assert self._client is not None
        options = {**self._options, **record.options}
        subject = self._subject(record)
        if not is_subject(subject):
            return f'"{subject[:80]}" is no subject'
        pairs = options.get("headers") or []
        if isinstance(pairs, str):
            try:
                pairs = value_of(Kind.PAIRS, pairs)
            except ValueError as error:
                return f"headers: {error}"
        if any(_CONTROL.search(text) for pair in pairs for text in pair):
            # A line break would end the header block, or begin another header.
            return "a header holds a line break, or another control character"
        if not all(_NAME.fullmatch(name) for name, _ in pairs):
            return "the name of a header has a sign that names don't have, such as a blank or (=)"
        headers = {"Content-Type": self._type, **dict(pairs), "Nats-Msg-Id": record.key}
        headers |= traces.outgoing(pairs)
        size = sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
        if len(record.payload) + size + _HEAD > self._client.max_payload:
            return f"the server accepts {self._client.max_payload} bytes"
        if options.get("acks"):
            return await self._publisher.send(subject, record.payload, headers)
        await self._client.publish(subject, record.payload, headers=headers)
        return None

    def _subject(self, record: Record) -> str:
        return str({**self._options, **record.options}["destination"])

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await self._publisher.close()
            await client.close()
