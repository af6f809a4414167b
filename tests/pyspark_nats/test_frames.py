"""Frames of the protocol: the same wherever the bytes are cut, and however they are read."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_nats.protocol import frames
from pyspark_nats.protocol.frames import header_values


@pytest.mark.nats
def test_frames_are_split_wherever_the_bytes_are_cut() -> None:
    block = frames.header_block({"Mesh-Timestamp": "5", "X": "y"})
    whole = b"".join(
        b"HMSG a.b 2 rep.ly %d %d\r\n%sdata%d\r\n" % (len(block), len(block) + 5, block, n)
        for n in range(4)
    )
    whole += b"MSG c 3 16\r\nMSG x 1 3\r\nabc\r\n\r\nPING\r\n"
    for cut in range(len(whole)):
        found = frames.split(whole[:cut])
        rest = frames.split(whole[found.consumed :])
        both = [*found.data.to_pylist(), *rest.data.to_pylist()]
        assert both == [b"data0", b"data1", b"data2", b"data3", b"MSG x 1 3\r\nabc\r\n"]
    values = header_values(frames.split(whole).header, "Mesh-Timestamp").to_pylist()
    assert values == ["5"] * 4 + [None]


HEADER = b"NATS/1.0\r\nA: 1\r\nB:  two \x1c\r\nA: \xff3\r\nNats-Sequence: 9\r\n\r\n"
RECEIVED = b"".join((
    b"MSG ev.a 1 2\r\nhi\r\n",
    b"MSG ev.bb 22 $JS.ACK.S.c.1.41.1.1700000000000000000.0 0\r\n\r\n",
    b"HMSG ev.\xc3\xa9 3 reply %d %d\r\n" % (len(HEADER), len(HEADER) + 4),
    HEADER, b"data\r\n",
    b"HMSG ev.d 3 16 16\r\nNATS/1.0 404\r\n\r\n\r\n",
    b"MSG ev.partial 1 10\r\nhal",
))  # fmt: skip


def test_frames_that_were_received(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[Any]:
        split = frames.split(RECEIVED)
        return [
            split.consumed,
            split.sid.tolist(),
            split.subject.to_pylist(),
            split.data.to_pylist(),
            [header or b"" for header in split.header.to_pylist()],
            split.is_status.tolist(),
            split.reply.to_pylist(),
            *(
                header_values(split.header, name, is_servers=last).to_pylist()
                for name in ("A", "B", "Nats-Sequence", "Absent")
                for last in (False, True)
            ),
        ]

    few = found()
    monkeypatch.setattr(frames, "_FEW_BYTES", -1)
    monkeypatch.setattr(frames, "FEW", -1)
    assert few == found()
    assert few[1] == [1, 22, 3, 3]


@pytest.mark.parametrize("sizes", [[9_000, 3, 0, 5_000], [3, 9_000, 0, 5_000]])
def test_frames_are_the_same_by_a_walk_and_by_passes(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    payloads = [b"MSG ev.x 1 3\r\n"[: size % 16] + b"y" * (size - size % 16) for size in sizes]
    received = b"".join(
        b"MSG ev.a 7 %d\r\n" % len(payload) + payload + b"\r\n"
        if n % 2
        else b"HMSG ev.b 7 %d %d\r\n" % (len(HEADER), len(HEADER) + len(payload))
        + HEADER + payload + b"\r\n"
        for n, payload in enumerate(payloads)
    ) + b"MSG ev.partial"  # fmt: skip
    found = []
    for large in (0, 1 << 30):
        monkeypatch.setattr(frames, "_LARGE_FRAME", large)
        monkeypatch.setattr(frames, "FEW", -1)
        split = frames.split(received)
        found.append(
            (split.consumed, split.subject.to_pylist(), split.data.to_pylist(), split.sid.tolist())
        )
    assert found[0] == found[1]
    assert found[0][1:] == (["ev.b", "ev.a"] * 2, payloads, [7] * 4)
