"""Lines between an agent and its session: each message comes back, and no other line is one."""

from __future__ import annotations

import os

import orjson
import pytest

from mesh.errors import MeshError
from mesh.model.app import Channel, GroupInput, GroupSpec, Strategy
from mesh.model.cluster import (
    Assignment,
    InstanceState,
    InstanceStatus,
    Standby,
    StandbyStatus,
)
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.settings import Settings
from mesh.worker import protocol

CHANNEL = Channel("A", StreamSchema("S", (Attribute("a", AttributeType.LONG),)))
GROUP = GroupSpec("A", "g", 2, "text\n\u2028", (GroupInput(CHANNEL, Strategy.ALL),), (), True)
STANDBY = Standby("A-g-1", "A", "g", 1, 1, "i1", "w2", "w2-1", 5)
MESSAGES: list[protocol.Command | protocol.Reply] = [
    protocol.StartInstance(Assignment("A-g-1", "A", "g", 1, "i1", "w1", 2, 7), GROUP),
    protocol.StopInstance("A-g-1", 3, settle=True, is_removed=True),
    protocol.HoldState(STANDBY, GROUP),
    protocol.ReleaseState("A-g-1"),
    protocol.Ready("4.1", 2.5),
    protocol.Report(InstanceStatus("A-g-1", "A", "w1", 2, InstanceState.RETRYING, 9, error="a\nb")),
    protocol.StandbyReport(StandbyStatus("A-g-1", "A", "w2", 5)),
    protocol.Figures({"heap": 1.5}),
]


def test_every_kind_is_tried() -> None:
    assert {type(one).__name__ for one in MESSAGES} == set(protocol._KINDS)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_a_message_is_one_line_that_is_read_back(message: protocol.Command) -> None:
    line = protocol.to_line(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert protocol.from_line(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\n", b"null", b"[]", b"log4j: a line", b'{"type": "Ready"}',
        b'{"type": "Settings", "value": {}}', b'{"value": {}}', b"\xff\n",
        protocol.to_line(MESSAGES[0])[:-20],
    ],
)  # fmt: skip
def test_another_line_is_refused_with_its_beginning(line: bytes) -> None:
    with pytest.raises(MeshError) as refusal:
        protocol.from_line(line * 1)
    assert refusal.value.code == "MESH-C101"
    assert len(str(refusal.value.detail)) < 1000


def test_a_message_without_its_fields_is_refused() -> None:
    line = orjson.dumps({"type": "StopInstance", "value": {"epoch": 1}})
    with pytest.raises(MeshError):
        protocol.from_line(line)


def test_nothing_is_read_behind_the_configuration() -> None:
    config = protocol.SessionConfig("w1", "/d", Settings())
    reader, writer = os.pipe()
    try:
        os.write(writer, protocol.config_line(config) + b"next")
        assert protocol.read_config(reader) == config
        assert os.read(reader, 99) == b"next"
        os.write(writer, protocol.config_line(config)[:-1])
        os.close(writer)
        # A session whose agent ended has what there is.
        assert protocol.read_config(reader) == config
    finally:
        os.close(reader)
