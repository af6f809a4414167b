"""Sink ``nats``: subjects of any server; ``Nats-Msg-Id`` is the record's key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NoStreamResponseError

from mesh import traces
from mesh.connect.contract import UnavailableError
from mesh.connect.spec import Kind, value_of
from mesh.receiver.nats_server import connect
from mesh.receiver.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nats.aio.client import Client

    from mesh.connect.contract import Context, Record

_TIMEOUT_S: Final = 5.0
_FAILURES: Final = (NatsError, JetStreamError, OSError, TimeoutError)


class NatsSink:
    """See ``mesh.connect.contract.Sink``."""

    state: Mapping[str, Any] | None = None

    def __init__(self) -> None:
        self._client: Client | None = None

    async def open(self, context: Context, state: Mapping[str, Any] | None) -> None:
        """Connect to the servers of the options."""
        self._options = context.options
        self._type = context.content_type
        self._client = await connect(context, "sink")
        self._publisher = Publisher(self._client)
        await self._publisher.open()

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Publish in order with many acks in flight, and wait for all of them."""
        assert self._client is not None
        outcomes: dict[int, str | None] = {}
        acks: dict[int, asyncio.Future[int]] = {}
        failure: BaseException | None = None
        try:
            for at, record in enumerate(records):
                found = await self._send(record)
                if isinstance(found, asyncio.Future):
                    acks[at] = found
                else:
                    outcomes[at] = found
            if not acks and not self._options.get("acks"):
                await self._client.flush(int(_TIMEOUT_S))
        except _FAILURES as error:
            failure = error
        answers = await asyncio.gather(*acks.values(), return_exceptions=True)
        for at, answer in zip(acks, answers, strict=True):
            if isinstance(answer, _FAILURES):
                failure = failure or answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                outcomes[at] = None
        if failure is None:
            return [outcomes[at] for at in range(len(records))]
        reason = f"{failure}" or type(failure).__name__
        if isinstance(failure, NoStreamResponseError):
            reason = "no stream stores the subject; acks='false' sends without one"
        if not self._options.get("acks"):
            # Nothing says which of them have left.
            outcomes = {at: said for at, said in outcomes.items() if said is not None}
        raise UnavailableError(reason, outcomes=outcomes)

    async def _send(self, record: Record) -> asyncio.Future[int] | str | None:
        """The ack to come, the reason why the record is refused, or None without acks."""
        assert self._client is not None
        options = {**self._options, **record.options}
        subject = self._subject(record)
        if not subject or any(c in subject for c in " \t\r\n*>") or ".." in f".{subject}.":
            return f'"{subject}" is no subject'
        pairs = options.get("headers") or []
        if isinstance(pairs, str):
            try:
                pairs = value_of(Kind.PAIRS, pairs)
            except ValueError as error:
                return f"headers: {error}"
        if any(c in text for pair in pairs for text in pair for c in "\r\n"):
            # It would end the header block, or begin another header.
            return "a header holds a line break"
        headers = {"Content-Type": self._type, **dict(pairs), "Nats-Msg-Id": record.key}
        headers |= traces.outgoing(pairs)
        if len(record.payload) > self._client.max_payload:
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
