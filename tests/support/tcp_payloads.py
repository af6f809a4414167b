"""A payload of the original's TCP protocol."""

from __future__ import annotations

#: Two events, and the message that has them for the context A/S, written by Java's
#: DataOutputStream as the original's client writes its buffers.
PAYLOAD = bytes.fromhex("""
    000000020000018bcfe5687b0000000349424dfffffffb00000100000000003fc00000bfb999999999999a0100
    00018bcfe5687c0000000000000007ffffffffffffffff000000007e37e43c8800759c00
""")
TIMES = [1700000000123, 1700000000124]
