"""Messages of the original's TCP protocol."""

from __future__ import annotations

import struct

import pytest

from mesh.receiver.tcp_server import message_of, parts_of
from tests.support.tcp_payloads import PAYLOAD

MESSAGE = bytes.fromhex("""
    020000006200000002733100000003412f5300000051000000020000018bcfe5687b0000000349424dfffffffb
    00000100000000003fc00000bfb999999999999a010000018bcfe5687c0000000000000007ffffffffffffffff
    000000007e37e43c8800759c00
""")


def test_a_message_is_the_original_s() -> None:
    assert message_of("s1", "A/S", PAYLOAD) == MESSAGE
    assert parts_of(MESSAGE[5:]) == ("A/S", PAYLOAD)


@pytest.mark.parametrize(
    "body",
    [
        b"", MESSAGE[5:-1], MESSAGE[5:] + b"x", struct.pack(">i", -1) + bytes(20),
        struct.pack(">iii", 0, 0, 1 << 30),
    ],
)  # fmt: skip
def test_a_message_whose_parts_do_not_fill_it_is_none(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"it|bytes"):
        parts_of(body)
