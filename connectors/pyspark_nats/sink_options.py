"""The options of the sink: read, checked, defaulted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_nats import connection_options
from pyspark_nats.options import OptionReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_nats.connection_options import ConnectionOptions

NAMES: Final = (
    *connection_options.NAMES,
    "stream", "subject", "epoch", "markerPrefix", "producer", "eventTimeHeader",
    "delivery",
)  # fmt: skip

DELIVERY: Final = ("exactly-once", "at-least-once")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What ``df.write`` and ``df.writeStream`` were told."""

    connection: ConnectionOptions
    #: For rows without a ``stream``; "" to look the stream up by subject.
    stream: str
    #: For rows without a ``subject``.
    subject: str
    #: Grows whenever another writer takes over; a marker with a higher one fences this writer.
    epoch: int
    marker_prefix: str
    #: For rows without a ``producer``; "" for a name of the query.
    producer: str
    event_time_header: str
    delivery: str


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check and read the options of a sink; OptionError as for a source."""
    read = OptionReader(given, NAMES, "sink")
    return SinkOptions(
        connection=connection_options.read_connection(read),
        stream=read.text("stream"),
        subject=read.text("subject"),
        epoch=read.integer("epoch", 0, least=0),
        marker_prefix=read.text("markerPrefix", "mesh._marker"),
        producer=read.text("producer"),
        event_time_header=read.text("eventTimeHeader", "Mesh-Timestamp"),
        delivery=read.one_of("delivery", DELIVERY, "exactly-once"),
    )
