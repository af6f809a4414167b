"""Acks counted in bulk: by subject, up to the last whole one; anything odd is noticed."""

from __future__ import annotations

import pytest

from pyspark_nats.protocol import answers
from tests.support.together import together

REPLIES = [b"_INBOX.a.7", b"_INBOX.a.8", b"_INBOX.a.70"]


def ack(reply: bytes, sequence: int = 1, stream: str = "S") -> bytes:
    data = b'{"stream":"%b","seq":%d}' % (stream.encode(), sequence)
    return b"MSG %b 1 %d\r\n%b\r\n" % (reply, len(data), data)


def test_acks_are_counted_by_their_subjects() -> None:
    one, two, three = (ack(reply, at) for at, reply in enumerate(REPLIES))
    buffer = one * 3 + two + three * 2 + one
    assert answers.counted(buffer, REPLIES) == ([4, 1, 2], len(buffer))
    assert answers.counted(bytearray(one), REPLIES[:1]) == ([1], len(one))


@together("left", range(1, len(ack(REPLIES[0]))))
def test_an_ack_that_is_not_whole_is_left(left: int) -> None:
    whole = ack(REPLIES[0], 12)
    part = ack(REPLIES[1], 3)[:left]
    assert answers.counted(whole + part, REPLIES) == ([1, 0, 0], len(whole))
    assert answers.counted(part, REPLIES) == ([0, 0, 0], 0)


@pytest.mark.parametrize(
    "odd",
    [
        b"PING\r\n",
        b"PING\r\nPING\r\n",
        b"-ERR 'Permissions Violation'\r\n",
        b'INFO {"max_payload":1}\r\n',
        ack(b"_INBOX.a.9"),
        b"HMSG _INBOX.a.7 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b'MSG _INBOX.a.7 1 40\r\n{"error":{"code":503,"err_code":10077,"d":""}}\r\n',
    ],
)
def test_whatever_else_is_there_has_to_be_read(odd: bytes) -> None:
    plain = ack(REPLIES[0])
    for buffer in (odd + plain, plain + odd + plain):
        assert answers.counted(buffer, REPLIES) is None
