"""The options of the sink: parsing, checks, defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_nats.encode import templates
from pyspark_nats.errors import OptionError
from pyspark_nats.options import OptionReader
from pyspark_nats.protocol import connection_options
from pyspark_nats.sink.markers import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_nats.encode.templates import Template
    from pyspark_nats.protocol.connection_options import ConnectionOptions

NAMES: Final = (
    *connection_options.NAMES,
    "stream", "subject", "format", "rowsPerMessage", "deliveryGuarantee", "epoch", "markerPrefix",
    "producer", "eventTimeHeader",
)  # fmt: skip

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
GUARANTEES: Final = (EXACTLY_ONCE, AT_LEAST_ONCE)

#: ``raw``: a column holds the payload.  The others encode typed columns as the payload.
FORMATS: Final = ("raw", "json", "msgpack", "arrow")
_ARROW_ROWS: Final = 1000
_ROWS_PER_MESSAGE_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of ``df.write`` and ``df.writeStream``."""

    connection: ConnectionOptions
    #: For rows without a ``stream``; "" to look the stream up by subject.
    stream: str
    #: For rows without a column for it; with empty text if there is none.
    subject: Template
    #: One of ``FORMATS``.
    format: str
    #: Most rows of one subject in one message.
    rows_per_message: int
    #: One of ``GUARANTEES``.
    guarantee: str
    #: Grows with each takeover by another writer; a marker with a higher one fences this writer.
    epoch: int
    marker_prefix: str
    #: For rows without a ``producer``; "" for a name derived from the query.
    producer: str
    event_time_header: str
    #: Whether Spark tracks the query's progress asynchronously: after a restart it may cut batches
    #: differently.
    is_recut: bool

    @property
    def is_exact(self) -> bool:
        """Whether rows are published exactly once."""
        return self.guarantee == EXACTLY_ONCE


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check and read the options of a sink; OptionError as for a source."""
    read = OptionReader(options, NAMES, "sink")
    form = read.one_of("format", FORMATS, "raw")
    rows = read.integer("rowsPerMessage", _ARROW_ROWS if form == "arrow" else 1, least=1)
    if form == "raw" and rows > 1:
        raise OptionError(
            'option "rowsPerMessage" needs rows that can be joined',
            hint='Set "format" to "json", "msgpack" or "arrow"; a raw row is a message of its own.',
        )
    if rows > _ROWS_PER_MESSAGE_MAX:
        raise OptionError(f'option "rowsPerMessage" is {rows}, above {_ROWS_PER_MESSAGE_MAX}')
    return SinkOptions(
        connection=connection_options.read_connection(read),
        stream=read.text("stream"),
        subject=templates.template(read.text("subject")),
        format=form,
        rows_per_message=rows,
        guarantee=read.one_of("deliveryGuarantee", GUARANTEES, EXACTLY_ONCE),
        epoch=read.integer("epoch", 0, least=0),
        marker_prefix=_token_path(read.text("markerPrefix", PREFIX), "markerPrefix"),
        producer=_token(read.text("producer"), "producer"),
        event_time_header=read.text("eventTimeHeader", "Mesh-Timestamp"),
        is_recut=read.flag("asyncProgressTrackingEnabled", default=False),
    )


def _token_path(text: str, name: str) -> str:
    templates.check_subject(text, f'option "{name}" is "{text}"')
    return text


def _token(text: str, name: str) -> str:
    """A name within a subject; it must be a single token."""
    if text and set(text) & set(" .*>\t\r\n"):
        raise OptionError(
            f'option "{name}" is "{text}", which can\'t be part of a subject',
            hint="Use letters, digits, - and _.",
        )
    return text
