"""Declarations of the sources and sinks of message brokers: Kafka."""

from __future__ import annotations

from typing import Final

from mesh.connect.parts import SINK, SOURCE, ignored, required
from mesh.connect.spec import Guarantee, Kind, Option, Role, Spec

_SERVERS: Final = required("bootstrap.servers", "host:port of brokers, comma-separated.")
_KAFKA_MORE: Final = Option(
    "optional.configuration",
    Kind.PAIRS,
    is_secret=True,
    doc="Settings of the client: 'security.protocol:SASL_SSL','sasl.password:..'.",
)
_BINARY: Final = Option("is.binary.message", is_ignored=True, doc="The mapper decides.")

SPECS: Final = (
    Spec(
        "kafka",
        Role.SOURCE,
        "Reads topics of Kafka; their offsets are stored with the events.",
        (
            _SERVERS,
            required("topic.list", "Topics, comma-separated; each must exist."),
            required("group.id", "Group to which offsets are committed, for tools that show lag."),
            Option(
                "threading.option",
                choices=("single.thread", "topic.wise", "partition.wise"),
                is_ignored=True,
                doc="One process reads all partitions.",
            ),
            Option("partition.no.list", doc="Partitions, comma-separated; all if not given."),
            Option(
                "topic.offsets.map",
                doc="Offsets at which the first start begins: t=100,u=50. Others: the earliest.",
            ),
            Option(
                "seq.enabled",
                Kind.SWITCH,
                "false",
                doc="Payloads begin with 'id:number~'; a number that is not larger is a repeat.",
            ),
            Option(
                "enable.offsets.commit", Kind.SWITCH, "true", doc="Commit offsets to the group."
            ),
            _KAFKA_MORE,
            _BINARY,
            *ignored("enable.async.commit"),
            *SOURCE,
        ),
        "mesh.receiver.types.kafka_source:KafkaSource",
        Guarantee.EXACTLY_ONCE,
        "Transactions that were aborted are not read.",
        ("topic", "partition", "offset", "key", "record.timestamp"),
        extra="kafka",
        library="confluent_kafka",
    ),
    Spec(
        "kafka",
        Role.SINK,
        "Writes each payload to a topic of Kafka, in transactions that hold the position.",
        (
            _SERVERS,
            Option("topic", is_required=True, is_dynamic=True, doc="The topic."),
            Option("key", is_dynamic=True, doc="Key of the record; decides on its partition."),
            Option(
                "partition.no", is_dynamic=True, doc="Partition; takes precedence over the key."
            ),
            Option("sequence.id", doc="Payloads begin with 'id:number~', as seq.enabled reads."),
            _KAFKA_MORE,
            _BINARY,
            *ignored("is.synchronous"),
            *SINK,
        ),
        "mesh.receiver.types.kafka_sink:KafkaSink",
        Guarantee.EXACTLY_ONCE,
        "Readers use isolation.level=read_committed. At least once under roundRobin.",
        extra="kafka",
        library="confluent_kafka",
    ),
)
