"""Retention of channels, changed and restored.

A stream whose retention is extended has its former one in its metadata, so that any manager can
restore it, and so that a retention that a person has set is never shortened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nats.js.errors import NotFoundError

from mesh.jetstream.connection import api_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.client import Client

    from mesh.control.retention import Retention

#: Metadata of a stream: its retention before an extension, seconds.
BEFORE: Final = "mesh.max_age_s"


async def change(client: Client, retention: Retention) -> bool:
    """Change the retention of a stream; whether the server has accepted it.

    Raises:
        TimeoutError: NATS did not answer; others of NATS.
    """
    info = await api_call(client, f"STREAM.INFO.{retention.js_stream}")
    config = info.get("config")
    if config is None:
        return False
    metadata = config.get("metadata") or {}
    if retention.group:
        metadata.setdefault(BEFORE, f"{config.get('max_age', 0) / 1e9:g}")
    else:
        metadata.pop(BEFORE, None)
    config |= {"metadata": metadata, "max_age": int(retention.max_age_s * 1e9)}
    # The window of duplicates may not be longer.
    config["duplicate_window"] = min(config.get("duplicate_window", 0), config["max_age"])
    answer = await api_call(client, f"STREAM.UPDATE.{retention.js_stream}", config)
    return "error" not in answer


async def ages_s(client: Client, sequences: Mapping[str, int], now_s: float) -> dict[str, float]:
    """By stream: the age of a message; none for one that is not there (yet)."""
    ages = {}
    for js_stream, sequence in sequences.items():
        try:
            message = await client.jetstream().get_msg(js_stream, sequence)
        except NotFoundError:
            continue
        if message.time is not None:
            ages[js_stream] = now_s - message.time.timestamp()
    return ages
