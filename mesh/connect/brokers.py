"""Declarations of the sources and sinks of message brokers: Kafka, RabbitMQ, MQTT."""

from __future__ import annotations

from typing import Final

from mesh.connect.parts import (
    SINK,
    SOURCE,
    TLS,
    headers,
    ignored,
    of_event,
    required,
    secret,
    switch,
)  # fmt: skip
from mesh.connect.places import OptionPlace
from mesh.connect.spec import Guarantee, Kind, Option, Role, Spec

_SERVERS: Final = required("bootstrap.servers", "host:port of brokers, comma-separated.")
_KAFKA_MORE: Final = Option(
    "optional.configuration",
    Kind.PAIRS,
    is_secret=True,
    doc="Settings of the client: 'security.protocol:SASL_SSL','sasl.password:..'.",
)
_BINARY: Final = Option("is.binary.message", is_ignored=True, doc="The mapper decides.")

_TLS_ENABLED: Final = switch("tls.enabled", "false", "TLS also for an address amqp://.")
_URI: Final = Option(
    "uri", is_required=True, is_secret=True, doc="amqp://user:password@host:5672/virtual-host."
)


def _exchange(*, is_dynamic: bool) -> tuple[Option, ...]:
    """Options of an exchange, which is declared if it is missing."""
    name = OptionPlace.NAME if is_dynamic else None
    choice = OptionPlace.TEXT if is_dynamic else None
    key = OptionPlace.ROUTING_KEY if is_dynamic else None
    return (
        Option("exchange.name", is_required=True, place=name, doc="The exchange."),
        Option(
            "exchange.type",
            default="direct",
            choices=("direct", "fanout", "topic", "headers"),
            place=choice,
            doc="Its type.",
        ),
        Option(
            "exchange.durable.enabled",
            Kind.SWITCH,
            "false",
            place=choice,
            doc="It outlives the server's restart.",
        ),
        Option(
            "exchange.autodelete.enabled",
            Kind.SWITCH,
            "false",
            place=choice,
            doc="It ends with its last queue.",
        ),
        Option("routing.key", default="", place=key, may_be_empty=True, doc="Routing key."),
    )


_MQTT: Final = (
    Option("url", Kind.URL, is_required=True, doc="tcp://host:1883 or ssl://host:8883."),
    Option("client.id", doc="Name of the client; by default one of the app and the stream."),
    Option("username", doc="User name."),
    secret("password", "Password."),
    Option("keep.alive", Kind.SECONDS, "60 sec", doc="Interval of signs of life."),
    Option("connection.timeout", Kind.SECONDS, "30 sec", doc="Time limit of calls."),
    *TLS,
)

SPECS: Final = (
    Spec(
        "kafka",
        Role.SOURCE,
        "Reads topics of Kafka; their offsets are stored with the events.",
        (
            _SERVERS,
            Option("topic.list", is_required=True, aliases=("topic",),
                   doc="Topics, comma-separated; each must exist."),
            required("group.id", "Group to which offsets are committed, for tools that show lag."),
            Option(
                "threading.option",
                choices=("single.thread", "topic.wise", "partition.wise"),
                is_ignored=True,
                doc="@dist(parallel='n') divides the partitions over n instances.",
            ),
            Option("partition.no.list", doc="Partitions, comma-separated; all if not given."),
            Option(
                "topic.offsets.map",
                doc="Offsets at which the first start begins: t=100,u=50. Others: the earliest. A "
                "source whose next record is gone fails, unless optional.configuration has "
                "'auto.offset.reset:earliest' or 'latest'.",
            ),
            Option(
                "seq.enabled",
                Kind.SWITCH,
                "false",
                doc="Payloads begin with 'id:number~'; a number that is not larger is a repeat. Of "
                "several instances each knows the numbers of its own partitions.",
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
        "Transactions that were aborted are not read. trp:NAME is a header of the record.",
        ("topic", "partition", "offset", "key", "record.timestamp", "event.timestamp", "*"),
        is_shared=True,
        extra="kafka",
        library="confluent_kafka",
    ),
    Spec(
        "kafka",
        Role.SINK,
        "Writes each payload to a topic of Kafka, in transactions that hold the position.",
        (
            _SERVERS,
            Option("topic", is_required=True, place=OptionPlace.NAME, doc="The topic."),
            Option("key", place=OptionPlace.TEXT, doc="Key of the record, for its partition."),
            headers("Headers of the record: 'name:value'."),
            Option(
                "partition.no", place=OptionPlace.TEXT, doc="Partition; prevails over the key."
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
    Spec(
        "rabbitmq",
        Role.SOURCE,
        "Reads a queue of RabbitMQ; messages are acknowledged once their events are stored.",
        (
            _URI,
            *_exchange(is_dynamic=False),
            Option("headers", Kind.PAIRS, doc="Of the binding, for an exchange of type headers."),
            Option("queue.name",
                   doc="The queue; {app}.{stream} by default, which goes with the source."),
            switch("queue.durable.enabled", "false", "It outlives the server's restart."),
            switch("queue.exclusive.enabled", "false", "It ends with the connection."),
            switch("queue.autodelete.enabled", "false", "It ends with its last reader."),
            Option("queue.args", Kind.PAIRS,
                   doc="Arguments of the queue: 'x-queue-type:quorum','x-message-ttl:60000'."),
            Option("stream.position",
                   doc="Where the first start begins in a stream: first, last, next, or an offset. "
                   "first with x-queue-type:stream in queue.args, else next."),
            _TLS_ENABLED,
            *TLS,
            *ignored("auto.ack", "consumer.threadpool.size", "heartbeat"),
            *SOURCE,
        ),
        "mesh.receiver.types.rabbitmq:RabbitSource",
        Guarantee.AT_LEAST_ONCE_WITH_KEY,
        "Messages with a message id that are delivered again are dropped.",
        ("*",),
        extra="rabbitmq",
        library="aio_pika",
    ),
    Spec(
        "rabbitmq",
        Role.SINK,
        "Publishes each payload to an exchange of RabbitMQ, and waits for the confirm.",
        (
            _URI,
            *_exchange(is_dynamic=True),
            headers("Headers: 'name:value'."),
            of_event("message.id", "By default the event's position.", OptionPlace.LINE),
            of_event("correlation.id", "Correlation id.", OptionPlace.LINE),
            of_event("priority", "From 0 to 255.", OptionPlace.TEXT, Kind.NUMBER),
            Option("delivery.mode", default="2", choices=("1", "2"), doc="2: persistent."),
            Option("reply.to", doc="Queue for answers."),
            Option("expiration", Kind.DURATION, doc="Lifetime of a message."),
            Option("content.type", doc="By default that of the mapper."),
            of_event("content.encoding", "Encoding of the content.", OptionPlace.LINE),
            of_event("user.id", "User; the server compares it with the login.", OptionPlace.LINE),
            of_event("app.id", "Name of the sending application.", OptionPlace.LINE),
            of_event("timestamp", "Milliseconds since 1970.", OptionPlace.LINE),
            _TLS_ENABLED,
            *TLS,
            *ignored("heartbeat"),
            *SINK,
        ),
        "mesh.receiver.types.rabbitmq:RabbitSink",
        Guarantee.AT_LEAST_ONCE_WITH_KEY,
        "The message id is the key.",
        extra="rabbitmq",
        library="aio_pika",
    ),
    Spec(
        "mqtt",
        Role.SOURCE,
        "Reads topics of an MQTT broker; messages are acknowledged once their events are stored.",
        (
            *_MQTT,
            Option("topic", is_required=True, doc="Topics, comma-separated, with + and #."),
            Option("quality.of.service", default="1", choices=("0", "1", "2"),
                   doc="0: messages that arrive while the source is away are lost."),
            Option("clean.session", Kind.SWITCH,
                   doc="Forget the session at the end; by default only with quality 0."),
            *ignored("automatic.reconnect"),
            *SOURCE,
        ),
        "mesh.receiver.types.mqtt:MqttSource",
        Guarantee.AT_LEAST_ONCE,
        "With quality.of.service='0' at most once. A retained message comes once in a session.",
        ("topic", "qos", "retain"),
        extra="mqtt",
        library="aiomqtt",
    ),
    Spec(
        "mqtt",
        Role.SINK,
        "Publishes each payload to a topic of an MQTT broker.",
        (
            *_MQTT,
            Option("topic", is_required=True, place=OptionPlace.TOPIC, doc="The topic."),
            Option("quality.of.service", default="1", choices=("0", "1", "2"),
                   place=OptionPlace.TEXT,
                   doc="1 and 2 wait for the broker."),
            Option("message.retain", Kind.SWITCH, "false",
                   place=OptionPlace.TEXT, aliases=("retain",),
                   doc="The broker keeps the last message of the topic."),
            Option("mqtt.version", default="5", choices=("5", "3.1.1"),
                   doc="3.1.1 has no place for the key."),
            *ignored("clean.session", "automatic.reconnect", "max.inflight"),
            *SINK,
        ),
        "mesh.receiver.types.mqtt:MqttSink",
        Guarantee.AT_LEAST_ONCE_WITH_KEY,
        "The key is the user property key. With quality.of.service='0' at most once.",
        extra="mqtt",
        library="aiomqtt",
    ),
)  # fmt: skip
