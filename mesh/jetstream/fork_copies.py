"""Copies of ranges of an app's inner channels into those of its fork, with the same sequences.

The fork's groups begin with snapshots whose positions are sequences of the first app's channels.
So the copies keep them: the stream begins at the first sequence of the range, and a place without a
message gets a marker of no producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.jetstream import channels, log_reader
from mesh.model import names

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.control.forking import Copy
    from mesh.settings import ChannelSettings

#: Producer of the markers in the places of messages that are gone; no group has the name.
_FILLER: Final = "_gap"


async def copy(client: Client, span: Copy, settings: ChannelSettings) -> int:
    """Make the stream of a copy and fill it; the number of messages.

    Events without a time of their own get that at which the first app's channel stored them.
    """
    await channels.ensure_stream(
        client, span.target, span.subject, settings, first_seq=span.after + 1
    )
    js = client.jetstream()
    prefix = names.marker_subject(span.source)
    filler = f"{names.marker_subject(span.target)}.{_FILLER}"
    next_, count = span.after + 1, 0
    async for one in log_reader.read(client, span.source, span.after + 1, span.to):
        while next_ < one.sequence:
            next_ = (await js.publish(filler, b"{}")).seq + 1
        if one.subject.startswith(f"{prefix}."):
            # Markers of the first app say nothing about the fork's producers.
            next_ = (await js.publish(filler, b"{}")).seq + 1
            continue
        headers = {names.EVENT_TIME_HEADER: str(one.time_ms), **one.headers}
        clean_headers = {k: v for k, v in headers.items() if not k.startswith("Nats-")}
        next_ = (await js.publish(span.subject, one.data, headers=clean_headers)).seq + 1
        count += 1
    while next_ <= span.to:
        next_ = (await js.publish(filler, b"{}")).seq + 1
    return count
