"""Settings of clients of Kafka, and the numbers in options and payloads."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from mesh.connect.contract import Context, NodeAccess, UnavailableError
from mesh.errors import MeshError
from mesh.receiver.types import kafka_sink, kafka_source
from mesh.receiver.types.kafka import first_offsets, numbered, settings, without_repeats
from mesh.receiver.types.kafka_sink import KafkaSink
from mesh.receiver.types.kafka_source import KafkaSource

pytestmark = pytest.mark.nats


def test_settings_that_run_commands_are_refused_and_those_of_java_left_out() -> None:
    own = {"bootstrap.servers": "h:1"}

    def given(*pairs: tuple[str, str], egress: tuple[str, ...] | None = None) -> dict[str, Any]:
        options = own | {"optional.configuration": list(pairs)}
        return settings(Context("a", "s", options, NodeAccess(egress=egress)), {})

    found = given(("max.poll.records", "1"), ("acks", "1"))
    assert "max.poll.records" not in found
    assert found["acks"] == "1"
    for name in ("sasl.kerberos.kinit.cmd", "plugin.library.paths", "transactional.id"):
        with pytest.raises(ValueError, match=name):
            given((name, "x"))
    with pytest.raises(MeshError, match="not open"):
        given(("ssl.ca.location", "/etc/passwd"))
    with pytest.raises(MeshError, match="may not connect to h:1"):
        given(egress=("*:9092",))
    assert given(egress=("h:1",))


def test_numbers_and_offsets_as_options_write_them() -> None:
    assert first_offsets("t=100, u=5") == {"t": 100, "u": 5}
    with pytest.raises(ValueError, match="is a list such as"):
        first_offsets("t")
    assert numbered(b"a:b:12~x~y") == ("a:b", 12, b"x~y")
    assert numbered(b"a~x") is None
    last = {"a": 4}
    assert without_repeats([b"a:4~x", b"a:5~y", b"b:0~z", b"plain"], last) == [
        None, b"y", b"z", b"plain",
    ]  # fmt: skip
    assert last == {"a": 5, "b": 0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KafkaSource, KafkaSink])
async def test_a_broker_that_is_away_has_a_reason(
    kind: type[KafkaSource | KafkaSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (kafka_source, kafka_sink):
        monkeypatch.setattr(module, "_CALL_S", 1.0)
    with socket.socket() as taken:
        # Bound, and listening to nobody.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = {
            "bootstrap.servers": address, "topic.list": "t", "topic": "t", "group.id": "g",
        }  # fmt: skip
        connector = kind()
        try:
            with pytest.raises(UnavailableError) as raised:
                await connector.open(Context("a", "s", options, instance="i"), None)
        finally:
            await connector.close()
    assert f"no broker answers ({address}/bootstrap: Connect to " in str(raised.value)
    assert str(raised.value).endswith("failed: Connection refused)")
