"""Every option of the source: its meaning, and the error for an invalid value."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_nats.errors import OptionError
from pyspark_nats.source.source_options import (
    AtTime,
    ReadLimits,
    StreamPoint,
    check_streaming,
    source_options,
)

GIVEN = {"servers": "nats://h:1", "stream": "S"}


def options(**given: str) -> Any:
    return source_options({**GIVEN, **given})


def test_names_have_no_case_and_values_no_space() -> None:
    read = source_options({"SERVERS": " h:1 ", "Stream": " S , T ", "SUBJECT": "a.*, b.>"})
    assert read.partitions == (("S",), ("T",))
    assert read.subjects_of("T") == ("a.*", "b.>")


def test_subjects_go_by_stream() -> None:
    read = options(stream="S,T", subject='{"S": "a.b,c", "T": ["d.>"]}')
    assert (read.subjects_of("S"), read.subjects_of("T")) == (("a.b", "c"), ("d.>",))
    assert options().subjects_of("S") == ()


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, "earliest"),
        ({"startingOffsets": "latest"}, "latest"),
        # As in Spark's Kafka source, a number is the first to read.
        ({"startingOffsets": '{"S": 7}'}, StreamPoint(6)),
        ({"startingOffsets": '{"S": "latest"}'}, "latest"),
        ({"startingOffsets": '{"S": {"sequence": 7, "time_ms": 5}}'}, StreamPoint(7, 5)),
        ({"startingOffsets": '{"S": {"sequence": 7, "created_ms": 5}}'}, StreamPoint(7, 0, 5)),
        ({"startingTimestamp": "1700000000000"}, AtTime(1_700_000_000_000)),
        ({"startingTimestamp": "2023-11-14T22:13:20Z"}, AtTime(1_700_000_000_000)),
        ({"startingTimestamp": "2023-11-14T23:13:20.5+01:00"}, AtTime(1_700_000_000_500)),
        ({"startingTimestamp": '{"S": 12}'}, AtTime(12)),
        ({"startingTimestamp": "0001-01-01T00:00:00+14:00"}, AtTime(0)),
    ],
)
def test_reading_starts_where_it_is_told(given: dict[str, str], place: object) -> None:
    starting = options(**given).starting
    assert starting.get("S", starting[""]) == place


def test_limits_hold_together() -> None:
    read = options(
        maxOffsetsPerTrigger="100", minOffsetsPerTrigger="10", maxTriggerDelay="1.5 s",
        maxBytesPerTrigger="5000",
    )  # fmt: skip
    assert read.limits == ReadLimits(100, 5000, 10, 1500)
    assert options().limits == ReadLimits(delay_max_ms=900_000)
    assert options().limits.are_none


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"maxOffsetPerTrigger": "5"}, 'Did you mean "maxOffsetsPerTrigger"?'),
        ({"startingOffset": "latest"}, 'Did you mean "startingOffsets"?'),
        ({"strem": "S"}, 'Did you mean "stream"?'),
        ({"startingOffsets": "ealiest"}, 'Did you mean "earliest"?'),
        ({"endingOffsets": "earliest"}, "latest"),
        ({"startingOffsets": '{"S": 0}'}, 'not of the form {"STREAM": 7}'),
        ({"startingOffsets": '{"S": {"seq": 1}}'}, 'not of the form {"STREAM": 7}'),
        ({"startingOffsets": '{"S": {"sequence": -5}}'}, 'not of the form {"STREAM": 7}'),
        ({"startingOffsets": '{"S": {"sequence": Infinity}}'}, 'not of the form {"STREAM": 7}'),
        ({"startingOffsets": '{"S": 7'}, "is not JSON"),
        ({"startingOffsets": '{"X": 7}'}, 'stream "X" is not among those that are read'),
        ({"startingOffsets": '{"S": 7}', "startingTimestamp": "1"}, "say the same thing twice"),
        ({"endingOffsets": '{"S": 7}', "endingTimestamp": "1"}, "say the same thing twice"),
        ({"startingTimestamp": "noon"}, "not a time"),
        ({"endingTimestamp": "2026-13-01"}, "not a time"),
        ({"startingOffsets": "latest", "endingOffsets": '{"S": 9}'}, "no message of stream"),
        ({"maxOffsetsPerTrigger": "0"}, "not a whole number from 1 up"),
        ({"maxBytesPerTrigger": "1k"}, "not a whole number from 1 up"),
        ({"minOffsetsPerTrigger": "x"}, "not a whole number from 1 up"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "above"),
        ({"maxTriggerDelay": "soon"}, "not a duration"),
        ({"maxTriggerDelay": "9" * 400 + "d"}, "not a duration"),
        ({"minPartitions": "-1"}, "not a whole number from 1 up"),
        ({"maxRecordsPerPartition": "none"}, "not a whole number from 1 up"),
        ({"failOnDataLoss": "no"}, 'neither "true" nor "false"'),
        ({"includeHeaders": "1"}, 'neither "true" nor "false"'),
        ({"parallelBy": "subjct"}, 'Did you mean "subject"?'),
        ({"parallelBy": "subject"}, 'no "subject" is given'),
        ({"subject": "a..b"}, "is no subject"),
        ({"subject": '{"S": null}'}, 'has null for stream "S"'),
        ({"subject": '{"S": ["a", 5]}'}, 'has ["a", 5] for stream "S"'),
        ({"subject": "a.>.b"}, "is no subject"),
        ({"subject": "a b"}, "is no subject"),
        ({"stream": "a.b"}, "is no name of a stream"),
        ({"stream": ""}, 'exactly one of the options "stream" and "streams"'),
        ({"stream": "S,S"}, "is named twice"),
        ({"streams": '[["S"]]'}, 'exactly one of the options "stream" and "streams"'),
        ({"stream": "", "streams": '["S"]'}, "not a JSON list of lists"),
        ({"format": "jsn"}, 'Did you mean "json"?'),
        ({"metadata": "_sequenz"}, 'Did you mean "_sequence"?'),
        ({"corrupt": "ignore"}, 'option "corrupt" is "ignore"'),
        ({"blockCount": "2", "blockIndex": "2"}, "of 2 blocks"),
        ({"blockSize": "0"}, "not a whole number from 1 up"),
        ({"rangeMarkers": "true", "format": "json"}, 'needs the format "raw"'),
        ({"rangeMarkers": "true", "minPartitions": "2"}, "in one Spark partition"),
        ({"idleWaitMs": "-1"}, "not a whole number from 0 up"),
        ({"servers": ""}, '"servers"'),
    ],
)
def test_a_wrong_option_is_named_with_what_would_be_right(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as raised:
        options(**given)
    assert says in str(raised.value)
    assert "[PYSPARK-NATS-OPTION]" in str(raised.value)


@pytest.mark.parametrize("name", ["endingOffsets", "ENDINGTIMESTAMP"])
def test_a_streaming_query_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match="does not go with a streaming query"):
        check_streaming({**GIVEN, name: "latest"})
