"""Sink ``http-call`` and source ``http-call-response``: answers to requests become events.

The source may run on another worker.  It subscribes to each status that it takes; the sink asks at
the subject of the answer's status, and has done with a request once the source has stored it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from mesh.connect.contract import RefusedPayloadError, UnavailableError
from mesh.errors import MeshError
from mesh.model import names
from mesh.receiver.access import path_of
from mesh.receiver.outcomes import is_outage, reason_of
from mesh.receiver.types.http_sink import HttpSink

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from mesh.connect.contract import Context, Record
    from mesh.web_answers import Answer

_ANSWER_S: Final = 15.0
_STATUSES: Final = range(100, 600)
#: Bytes of a file that an answer is written to.
_FILE_MAX: Final = 64 << 20


class HttpCall(HttpSink):
    """See ``mesh.connect.contract.Sink``."""

    takes_events = True

    async def open(self, context: Context, state: Mapping[str, Any] | None) -> None:
        """Prepare a client."""
        await super().open(context, state)
        self._mesh, self._app = context.client, context.app

    def _answer_max(self) -> int:
        """Bytes of an answer that a file, or else a message of NATS, may have."""
        is_file = self._options.get("downloading.enabled")
        return _FILE_MAX if is_file else int(self._mesh.max_payload)

    async def _settled(self, record: Record, answer: Answer) -> str | None:
        """Hand an answer to the source of its status; without one, as the sink ``http`` does."""
        response = answer.response
        payload, flaw = answer.content, answer.flaw
        if self._options.get("downloading.enabled") and response.is_success and not flaw:
            try:
                payload = await self._downloaded(record, payload)
            except MeshError as error:
                return str(error)
            except (OSError, ValueError) as error:
                if is_outage(error):
                    raise UnavailableError(reason_of(error)) from error
                return reason_of(error)
        question = {
            "payload": base64.b64encode(payload).decode(),
            "properties": {
                **{name.lower(): value for name, value in response.headers.items()},
                **{name.lower(): _text(value) for name, value in (record.event or {}).items()},
            },
            "key": record.key,
        }
        subject = names.call_subject(self._app, self._options["sink.id"], response.status_code)
        asked = orjson.dumps(question)
        if not flaw and len(asked) > self._mesh.max_payload:
            flaw = f"it has {len(payload)} bytes, too many for NATS"
        if flaw:
            # The source refuses it: the request was sent, and another answer would be the same.
            asked = orjson.dumps({"flaw": flaw})
        try:
            reply = await self._mesh.request(subject, asked, timeout=_ANSWER_S)
        except NoRespondersError:
            return await super()._settled(record, answer)
        except (NatsError, TimeoutError, OSError) as error:
            raise UnavailableError(f"the answer was not stored: {error}") from error
        said = orjson.loads(reply.data)
        if "away" in said:
            raise UnavailableError(f"the answer was not stored: {said['away']}")
        refused = said.get("refused")
        return f"the answer {response.status_code} can't be read: {refused}" if refused else None

    async def _downloaded(self, record: Record, body: bytes) -> bytes:
        """Write a body to the file of the options; its path.  A repeat writes the same file."""
        wanted = record.options.get("download.path") or self._options["download.path"]
        path = path_of(self._access, str(wanted))
        await asyncio.to_thread(_write_whole, Path(path), body)
        return path.encode()


class HttpCallResponse:
    """See ``mesh.connect.contract.Server``."""

    def __init__(self) -> None:
        self.endpoint = ""
        self._subscriptions: list[Subscription] = []

    async def open(
        self,
        context: Context,
        accept: Callable[[bytes, Mapping[str, str], str | None], Awaitable[int]],
    ) -> None:
        """Subscribe to the answers with the statuses of the options."""
        takes = re.compile(str(context.options["http.status.code"]))

        async def received(message: Msg) -> None:
            given: dict[str, Any] = orjson.loads(message.data)
            try:
                if "flaw" in given:
                    raise RefusedPayloadError(given["flaw"])
                payload = base64.b64decode(given["payload"])
                await accept(payload, given["properties"], given["key"])
                answer: dict[str, Any] = {}
            except RefusedPayloadError as error:
                answer = {"refused": str(error)}
            except UnavailableError as error:
                answer = {"away": str(error)}
            await message.respond(orjson.dumps(answer))

        sink = context.options["sink.id"]
        for status in _STATUSES:
            if takes.fullmatch(str(status)):
                subject = names.call_subject(context.app, sink, status)
                self._subscriptions.append(
                    await context.client.subscribe(subject, queue=context.stream, cb=received)
                )

    async def close(self) -> None:
        """Take no answer more."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for one in subscriptions:
            with contextlib.suppress(NatsError, OSError):
                await one.unsubscribe()


def _write_whole(path: Path, body: bytes) -> None:
    """Write a file that others see once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(body)
    part.replace(path)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
