"""Settings of Kafka clients that an app may give, and topics and offsets as options write them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.access import check_url, path_of, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

    from mesh.connect.contract import Context
    from mesh.model.values import JsonMapping, JsonObject

#: Settings that this project decides on, or that load code, run commands or read files.
_CLOSED: Final = (
    "plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.providers",
    "enable.auto.commit", "enable.auto.offset.store", "enable.idempotence", "transactional.id",
    "group.id", "bootstrap.servers", "metadata.broker.list", "partition.assignment.strategy",
    "delivery.report.only.error", "builtin.features", "debug", "log.queue",
)  # fmt: skip
#: Settings of the Java client that this one does not have, and that have no effect on results.
_JAVA: Final = (
    "max.poll.records", "key.serializer", "value.serializer", "key.deserializer",
    "value.deserializer", "partitioner.class", "max.block.ms", "buffer.memory",
    "fetch.max.wait.ms",
)  # fmt: skip
#: Ends of the names of settings that are files.
_FILES: Final = (".location", ".keytab", ".file", ".path")
#: The end of a client's report: the state of its connection.
_STATE: Final = re.compile(r" \(after \d+ms in state .*\)\Z")
#: Errors of the client, not of a broker.
_AWAY: Final = ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")


def settings(context: Context, overrides: JsonMapping) -> JsonObject:
    """Settings of a client: brokers, those of ``optional.configuration``, then ``overrides``.

    Raises:
        ValueError: ``optional.configuration`` has a setting that an app may not give.
        MeshError: MESH-C132 for brokers or files that are not open to connectors.
    """
    options = context.options
    for address in words(options["bootstrap.servers"]):
        check_url(context.access, f"//{address.rpartition('://')[2]}", 9092)
    config: JsonObject = {
        "bootstrap.servers": options["bootstrap.servers"],
        "socket.timeout.ms": 5000,
        # Errors reach the caller; lines on standard error add nothing.
        "log_level": 0,
    }
    for name, value in options.get("optional.configuration") or ():
        if name in _CLOSED:
            raise ValueError(f'optional.configuration can\'t have the setting "{name}"')
        if name.endswith(_FILES):
            path_of(context.access, value)
        if name.endswith(".url"):
            check_url(context.access, value, 443)
        if name not in _JAVA:
            config[name] = value
    return config | dict(overrides)


class Reports:
    """Errors that a client reports by itself, as its setting ``error_cb``.

    The last one says why no broker answers: a refused connection, a login, a name without address.
    The error of the call that failed knows only that time has passed.
    """

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, error: KafkaError) -> None:
        """Keep a report; that all brokers are down follows from the one before."""
        if error.name() != "_ALL_BROKERS_DOWN":
            self._last = _STATE.sub("", str(error.str()))

    def last_of(self, client: Consumer | Producer | AdminClient) -> str:
        """The last report of a client whose call has failed; empty without one."""
        # Reports wait until the client is polled.
        client.poll(0)
        return self._last


def reason_of(error: Exception, reported: str = "") -> str:
    """The text of a client's error, without its numbers; of no answer, what it has reported."""
    first: Any = error.args[0] if error.args else error
    if hasattr(first, "name") and first.name() in _AWAY:
        return f"no broker answers ({reported or first.str()})"
    return str(first.str()) if hasattr(first, "str") else str(error)


def first_offsets(text: str | None) -> dict[str, int]:
    """``t=100,u=50`` by topic.

    Raises:
        ValueError: it has another form.
    """
    offsets = {}
    for word in words(text):
        topic, equals, offset = word.partition("=")
        if not equals or not offset.strip().isdecimal():
            raise ValueError('option "topic.offsets.map" is a list such as t=100,u=50')
        offsets[topic.strip()] = int(offset)
    return offsets


def numbered(payload: bytes) -> tuple[str, int, bytes] | None:
    """Sequence id, number and payload of ``id:number~payload``; None for another form."""
    head, mark, rest = payload.partition(b"~")
    name, colon, number = head.rpartition(b":")
    if not mark or not colon or not number.isdigit() or len(number) > 18:
        return None
    return name.decode(errors="replace"), int(number), rest


def without_repeats(payloads: Iterable[bytes], last: dict[str, int]) -> list[bytes | None]:
    """Payloads without their numbers, None for repeats; ``last`` has the last number of each id.

    A payload without a number is kept as it is.
    """
    results: list[bytes | None] = []
    for payload in payloads:
        entry = numbered(payload)
        if entry is None:
            results.append(payload)
            continue
        name, number, rest = entry
        is_new = number > last.get(name, -1)
        results.append(rest if is_new else None)
        last[name] = max(number, last.get(name, -1))
    return results
