"""Encoding of Arrow columns as message payloads: JSON, MessagePack and Arrow."""

from __future__ import annotations

from pyspark_nats.encode.payloads import arrow_streams as arrow_streams
from pyspark_nats.encode.payloads import few_to_json as few_to_json
from pyspark_nats.encode.payloads import iso_texts as iso_texts
from pyspark_nats.encode.payloads import plain_value as plain_value
from pyspark_nats.encode.payloads import to_arrow as to_arrow
from pyspark_nats.encode.payloads import to_json as to_json
