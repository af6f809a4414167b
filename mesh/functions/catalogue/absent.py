"""Extensions of the original that don't run here, and what serves instead of each.

A refusal of one names it at its own place, and says what to use.  An extension that runs here is
never looked up, so an entry may stay when it is built.
"""

from __future__ import annotations

from typing import Final

_PUBLISH: Final = (
    "Leave the source out: a program that reads it publishes JSON to the stream's subject, "
    "as 'mesh publish' does."
)
_SUBSCRIBE: Final = (
    "Leave the sink out: a program that writes there subscribes to the stream's subject."
)
_OUTSIDE: Final = (
    "Compute it in a program that subscribes to the stream's subject, and publishes its results to "
    "that of another stream."
)
_SCRIPT: Final = (
    "Write it in JavaScript or Python: define function f[javascript] return double { .. }."
)

_VARIABLE: Final = "Write ${NAME} in the text: its value is that of --var, or of the environment."
_RESOURCES: Final = (
    "Wait for one event of each by a pattern, 'from every a=A and b=B'; or for a number of them by "
    "lengthBatch."
)
_PLACE_OF_ADDRESS: Final = (
    "Use http-call with the address of a service; or a table of places, which is joined."
)
_USER_AGENT: Final = "Use regex:group on the header: regex:group('(Firefox|Chrome)', agent, 1)."
_GOOGLE_STORE: Final = "Use s3 with the option endpoint: Google's store speaks its protocol."
_ROWS: Final = "Use rdbms or redis; or leave @store out: the rows are in the state."
#: By role and name of a source, sink, mapper or store, a sentence.
_KINDS: Final = {
    "source jms": "ActiveMQ and Artemis speak MQTT as well: use mqtt. RabbitMQ: use rabbitmq.",
    "sink jms": "ActiveMQ and Artemis speak MQTT as well: use mqtt. RabbitMQ: use rabbitmq.",
    "source sse-server": "Use sse to listen to a server; or http, to which events are posted.",
    "source kafkaMultiDC": "Use one source kafka for each datacenter, as two streams that are "
    "inserted into one; docs/two-datacenters.md has the meshes' own way.",
    "sink kafkaMultiDC": "Use @distribution(strategy='broadcast') of the sink kafka.",
    "source kafka-replay-response": "Use 'mesh backfill', or the source history.",
    "sink kafka-replay-request": "Use 'mesh backfill', or the source history.",
    "source websubhub": "Use http-service.",
    "sink websubhub": "Use http.",
    "source googlepubsub": "Let a push subscription post to the source http.",
    "source sqs": _PUBLISH,
    "source twitter": _PUBLISH,
    "source snmp": _PUBLISH,
    "source hl7": _PUBLISH,
    "source ibmmessagehub": "IBM's hub speaks the protocol of Kafka: use kafka.",
    "sink ibmmessagehub": "IBM's hub speaks the protocol of Kafka: use kafka.",
    "source ibmmq": "IBM MQ speaks MQTT as well: use mqtt.",
    "sink ibmmq": "IBM MQ speaks MQTT as well: use mqtt.",
    "source wso2event": _PUBLISH,
    "source thrift": _PUBLISH,
    "sink wso2event": _SUBSCRIBE,
    "sink thrift": _SUBSCRIBE,
    "sink googlepubsub": "Use http with the REST address of the topic.",
    "sink sqs": _SUBSCRIBE,
    "sink snmp": _SUBSCRIBE,
    "sink hl7": _SUBSCRIBE,
    "sink slack": "Use http with the address of the webhook.",
    "sink gcs": _GOOGLE_STORE,
    "sink google-cloud-storage": _GOOGLE_STORE,
    "sink googlecloudstorage": _GOOGLE_STORE,
    "sink azuredatalake": _SUBSCRIBE,
    "sink hdfs": _SUBSCRIBE,
    "source mapper binaryPassThrough": "No attribute has octets: read texts, with the mapper text; "
    "or protobuf, avro or msgpack.",
    "sink mapper binaryPassThrough": "No attribute has octets: write texts, with the mapper text; "
    "or protobuf, avro or msgpack.",
    "source mapper wso2event": "Use json.",
    "sink mapper wso2event": "Use json.",
    "source mapper hl7": "Use text with regular expressions, or xml.",
    "sink mapper hl7": "Use text with @payload.",
    "source mapper odata": "Use json with @attributes(a='$.path').",
    "store mongodb": _ROWS,
    "store elasticsearch": "Use rdbms; to index events there as well, a sink http.",
    "store opensearch": "Use rdbms; to index events there as well, a sink http.",
    "store solr": "Use rdbms; to index events there as well, a sink http.",
    "store cassandra": _ROWS,
    "store hbase": _ROWS,
    "store hazelcast": "Leave @store out: the rows are in the state, and queries reach them.",
    "store influxdb": "Use rdbms; or an aggregation: define aggregation A ..",
    "store inmemory": "Leave @store out: the rows are in the state.",
    "store s3": "Use rdbms, or the sink s3.",
    "store azuretable": "Use rdbms.",
    "store gridgain": "Use rdbms.",
}

#: By role, for a name that nothing has.
_UNKNOWN: Final = {
    "source": f"'mesh connectors' lists the sources.  {_PUBLISH}",
    "sink": f"'mesh connectors' lists the sinks.  {_SUBSCRIBE}",
    "source mapper": "docs/connectors.md lists the mappers.",
    "sink mapper": "docs/connectors.md lists the mappers.",
    "store": _ROWS,
    "script language": "Use javascript or python.",
    "distribution strategy": "Use roundRobin, broadcast or partitioned.",
}

#: By namespace of functions, windows and stream functions, a sentence.
_NAMESPACES: Final = {
    "env": _VARIABLE,
    "evalscript": _SCRIPT,
    "extrema": "Use extrema:maxByLength, minByTime, topKTimeBatch and the like; or count() with "
    "group by, order by and limit.",
    "file": "Read and write files by the source and the sink file; fileeventlistener reports new "
    "ones, and action.after.process moves those that were read.",
    "geo": "Use geo:within, intersects, withinDistance and the like, and a table by the vehicle.",
    "google": "Use http-call with the address of the service.",
    "graph": _OUTSIDE,
    "grpc": "Use grpc-call.",
    "http": "Use the sink http-call and the source http-call-response.",
    "js": _SCRIPT,
    "kafka": "Use 'mesh backfill', or the source history.",
    "ml": _OUTSIDE,
    "nlp": _OUTSIDE,
    "onnx": "Use http-call with the address of a server of the model.",
    "pmml": "Use http-call with the address of a server of the model.",
    "r": _SCRIPT,
    "rdbms": "Use rdbms:query or rdbms:cud, with the call of the procedure as its statement.",
    "reorder": "Use reorder:kslack or akslack, or externalTime windows, which take the time of the "
    "events.",
    "sentiment": _OUTSIDE,
    "soap": "Use http-call, with the mapper xml.",
    "store": "Define a table with @store(type='rdbms', ..), and join, update or delete its rows.",
    "throttler": "Use timeBatch(1 min, 0, true), which emits each event at once, and select "
    "eventTimestamp() + 60000L as expiryTimeStamp; a change of state is a join with the query's "
    "own output (docs/siddhiql.md, Groups).",
    "tensorFlow": "Use http-call with the address of a server of the model.",
    "vader": _OUTSIDE,
}
#: By full name, where the namespace has others that run.
_NAMES: Final = {
    "env:getSystemProperty": _VARIABLE,
    "env:resourceBatch": _RESOURCES,
    "env:resourceIdentifier": _RESOURCES,
    "env:getUserAgentProperty": _USER_AGENT,
    "env:getOSFromUserAgent": _USER_AGENT,
    "env:getBrowserFromUserAgent": _USER_AGENT,
    "geo:crosses": "In a partition by the vehicle: every e1=S, e2=S[geo:within(x, y, '{..}') != "
    "geo:within(e1.x, e1.y, '{..}')].",
    "geo:stationary": "In a partition by the vehicle: every e1=S, "
    "e2=S[geo:distance(y, x, e1.y, e1.x) < 50.0].",
    "geo:proximity": "Join S#window.unique:ever(id) with itself, on geo:distance(..) < 50.0 and "
    "ids that differ.",
    "geo:ip": _PLACE_OF_ADDRESS,
    "geo:findCityFromIP": _PLACE_OF_ADDRESS,
    "geo:findCountryFromIP": _PLACE_OF_ADDRESS,
    "geo:getLatitudeByIP": _PLACE_OF_ADDRESS,
    "geo:getLongitudeByIP": _PLACE_OF_ADDRESS,
    "geo:geocode": _PLACE_OF_ADDRESS,
    "geo:reversegeocode": _PLACE_OF_ADDRESS,
    "ip:geo": _PLACE_OF_ADDRESS,
    "streamingml:clusTree": "Use streamingml:kMeansIncremental or kMeansMiniBatch.",
    "evalScript": _SCRIPT,
    "expression": "'count() <= 5' is length(5), and a span is time(1 min) or externalTime; other "
    "conditions are a filter before or after one of these.",
    "expressionBatch": "'count() <= 5' is lengthBatch(5), and a span is timeBatch(1 min) or "
    "externalTimeBatch.",
}


def instead_of_kind(role: str, name: str) -> str | None:
    """The hint for a source, sink, mapper or store; None for a name that is unknown."""
    lower = name.lower()
    spellings = (name, lower, lower.replace("-", ""))
    return next((_KINDS[key] for one in spellings if (key := f"{role} {one}") in _KINDS), None)


def instead_of_unknown(role: str) -> str:
    """The hint for a source, sink, mapper, store or other kind whose name nothing has."""
    return _UNKNOWN[role]


def instead_of_extension(namespace: str, *, is_value: bool) -> str:
    """The hint for a call of an extension that is known nowhere.

    ``is_value``: whether the call is a function, which a script can be.
    """
    way = _SCRIPT if is_value else _OUTSIDE
    return f'No extension "{namespace}" runs here; docs/siddhiql.md lists what runs.  {way}'


def instead_of_call(name: str) -> str | None:
    """The hint for a function, window or stream function; None for a name that is unknown."""
    namespace, colon, _ = name.rpartition(":")
    return _NAMES.get(name) or (_NAMESPACES.get(namespace) if colon else None)
