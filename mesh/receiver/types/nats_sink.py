"""Sink ``nats``: subjects of any server; ``Nats-Msg-Id`` is the record's key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import nats
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NoStreamResponseError

from mesh.connect.contract import UnavailableError
from mesh.connect.spec import Kind, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nats.aio.client import Client

    from mesh.connect.contract import Context, Record

_TIMEOUT_S: Final = 5.0


class NatsSink:
    """See ``mesh.connect.contract.Sink``."""

    state: Mapping[str, Any] | None = None

    def __init__(self) -> None:
        self._client: Client | None = None

    async def open(self, context: Context, state: Mapping[str, Any] | None) -> None:
        """Connect to the servers of the options."""
        options = self._options = context.options
        self._type = context.content_type
        login = {
            "user": options.get("username"),
            "password": options.get("password"),
            "token": options.get("token"),
        }

        async def ignore(error: Exception) -> None:
            """The requests fail as well."""

        try:
            self._client = await nats.connect(
                [one.strip() for one in str(options["server.urls"]).split(",")],
                name=f"mesh sink {context.instance}",
                connect_timeout=int(_TIMEOUT_S),
                # The host connects again.
                allow_reconnect=False,
                error_cb=ignore,
                **{name: value for name, value in login.items() if value},
            )
        except (NatsError, OSError, TimeoutError) as error:
            raise UnavailableError(f"{error}" or type(error).__name__) from error

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Publish in order, and wait for the acks."""
        assert self._client is not None
        found = await asyncio.gather(*map(self._publish, records), return_exceptions=True)
        outcomes: dict[int, str | None] = {}
        for at, outcome in enumerate(found):
            if isinstance(outcome, NatsError | JetStreamError | OSError | TimeoutError):
                reason = f"{outcome}" or type(outcome).__name__
                if isinstance(outcome, NoStreamResponseError):
                    reason = "no stream stores the subject; acks='false' sends without one"
                raise UnavailableError(reason, outcomes=outcomes)
            if isinstance(outcome, BaseException):
                raise outcome
            outcomes[at] = outcome
        if not self._options.get("acks"):
            try:
                await self._client.flush(int(_TIMEOUT_S))
            except (NatsError, TimeoutError, OSError) as error:
                raise UnavailableError(f"{error}" or type(error).__name__) from error
        return [outcomes[at] for at in range(len(records))]

    async def _publish(self, record: Record) -> str | None:
        assert self._client is not None
        options = {**self._options, **record.options}
        subject = options["destination"]
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
        if len(record.payload) > self._client.max_payload:
            return f"the server accepts {self._client.max_payload} bytes"
        if options.get("acks"):
            js = self._client.jetstream()
            await js.publish(subject, record.payload, headers=headers, timeout=_TIMEOUT_S)
        else:
            await self._client.publish(subject, record.payload, headers=headers)
        return None

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
