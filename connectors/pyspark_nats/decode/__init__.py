"""Decoding of message payloads: JSON, MessagePack and Arrow, as Arrow columns."""

from __future__ import annotations

from pyspark_nats.decode.event_times import with_event_times as with_event_times
from pyspark_nats.decode.payloads import EVENT_TIME as EVENT_TIME
from pyspark_nats.decode.payloads import MISSING as MISSING
from pyspark_nats.decode.payloads import DecodeResult as DecodeResult
from pyspark_nats.decode.payloads import MessageLimits as MessageLimits
from pyspark_nats.decode.payloads import decode_messages as decode_messages
