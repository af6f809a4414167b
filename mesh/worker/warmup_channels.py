"""Channels of warm-up apps: their names, and the removal of those that killed sessions left."""

from __future__ import annotations

import logging
import re
import secrets
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from nats.js.errors import BucketNotFoundError, KeyNotFoundError, NotFoundError

from mesh.jetstream.connection import UNREACHABLE, api_call
from mesh.model import names
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from nats.aio.client import Client

log = logging.getLogger(__name__)

_APP: Final = re.compile(rf"{names.ROOT}-(warmup-[0-9a-f]{{16}})-\w+-?\Z")
#: No warm-up takes as long; an older channel belongs to a session that was killed.
_LONGEST: Final = timedelta(hours=1)


def app_name() -> str:
    """A new name for a warm-up app; it does not depend on the worker's name."""
    return f"warmup-{secrets.token_hex(8)}"


def app_of(js_stream: str) -> str | None:
    """The warm-up app that made a JetStream stream; None for any other stream."""
    match = _APP.match(js_stream)
    return match[1] if match else None


def is_left_over(created: str, now: str, longest: timedelta = _LONGEST) -> bool:
    """Whether a warm-up's stream is older than any warm-up takes.

    Args:
        created: the server's time when it made the stream, RFC 3339.
        now: the server's present time.
        longest: time that no warm-up takes.
    """
    return datetime.fromisoformat(now) - datetime.fromisoformat(created) > longest


async def delete_left_over(client: Client, longest: timedelta = _LONGEST) -> None:
    """Delete the streams of warm-ups whose sessions were killed.

    Without an answer from NATS it deletes nothing; the next session tries again.
    """
    try:
        await _delete_left_over(client, longest)
    except UNREACHABLE as error:
        log.debug("channels of earlier warm-ups not deleted", extra=fields(error=error))


async def _delete_left_over(client: Client, longest: timedelta) -> None:
    js = client.jetstream()
    for name in await _stream_names(client):
        app = app_of(name)
        if app is None:
            continue
        info = await api_call(client, f"STREAM.INFO.{name}", {})
        if "error" in info or not is_left_over(info["created"], info["ts"], longest):
            continue
        if not await _is_deployed(client, app):
            with suppress(NotFoundError):
                await js.delete_stream(name)


async def _stream_names(client: Client) -> list[str]:
    streams: list[str] = []
    while True:
        page = await api_call(client, "STREAM.NAMES", {"offset": len(streams)})
        streams += page.get("streams") or []
        if not page.get("streams") or len(streams) >= page["total"]:
            return streams


async def _is_deployed(client: Client, app: str) -> bool:
    """Whether a user deployed an app of this name."""
    try:
        apps = await client.jetstream().key_value(names.APPS_BUCKET)
        await apps.get(names.app_key(app))
    except (BucketNotFoundError, KeyNotFoundError, NotFoundError):
        return False
    return True
