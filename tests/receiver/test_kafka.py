"""Settings of clients of Kafka, and the numbers in options and payloads."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.connect.contract import Context, NodeAccess
from mesh.errors import MeshError
from mesh.receiver.types.kafka import first_offsets, numbered, settings, without_repeats

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
