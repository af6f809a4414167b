"""Sink ``http-call`` and source ``http-call-response``: answers to requests become events.

The source takes the answers of some statuses; see ``mesh.receiver.types.calls``.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nats.errors import NoRespondersError

from mesh.connect.contract import UnavailableError
from mesh.errors import MeshError
from mesh.model import names
from mesh.receiver.access import path_of
from mesh.receiver.outcomes import is_outage, reason_of
from mesh.receiver.types.calls import CallResponse, hand_over
from mesh.receiver.types.http_sink import HttpSink

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.connect.contract import Context, Record
    from mesh.http.web_answers import WebAnswer
    from mesh.model.values import JsonMapping

_STATUSES: Final = range(100, 600)
#: Bytes of a file that an answer is written to.
_FILE_MAX: Final = 64 << 20


class HttpCall(HttpSink):
    """See ``mesh.connect.contract.Sink``."""

    takes_events = True

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Prepare a client."""
        await super().open(context, state)
        self._mesh, self._app = context.client, context.app

    def _answer_max(self) -> int:
        """Bytes of an answer that a file, or else a message of NATS, may have."""
        is_file = self._options.get("downloading.enabled")
        return _FILE_MAX if is_file else int(self._mesh.max_payload)

    async def _settled(self, record: Record, answer: WebAnswer) -> str | None:
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
        subject = names.call_subject(self._app, self._options["sink.id"], response.status_code)
        try:
            refused = await hand_over(
                self._mesh, subject, record, payload, response.headers.items(), flaw
            )
        except NoRespondersError:
            return await super()._settled(record, answer)
        return f"the answer {response.status_code} can't be read: {refused}" if refused else None

    async def _downloaded(self, record: Record, body: bytes) -> bytes:
        """Write a body to the file of the options; its path.  A repeat writes the same file."""
        target = record.options.get("download.path") or self._options["download.path"]
        path = path_of(self._access, str(target))
        await asyncio.to_thread(_write_whole, Path(path), body)
        return path.encode()


class HttpCallResponse(CallResponse):
    """See ``mesh.connect.contract.Server``."""

    def _statuses(self, context: Context) -> Iterable[int]:
        takes = re.compile(str(context.options["http.status.code"]))
        return [status for status in _STATUSES if takes.fullmatch(str(status))]


def _write_whole(path: Path, body: bytes) -> None:
    """Write a file that others see once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(body)
    part.replace(path)
