"""The measured apps, and the target of each as a multiple of the engine's rate.

All read ``TempStream`` and write ``Out``.  There is one event a millisecond; ``deviceID`` is one of
as many keys as the measurement has, ``roomNo`` one of 20, ``temp`` from 20 to 35 in tenths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_STREAM: Final = "define stream TempStream (deviceID long, roomNo int, temp double);\n"
_WITH_TIME: Final = "define stream TempStream (deviceID long, roomNo int, temp double, ts long);\n"
_PLAYED: Final = "@app:playback "
_AVERAGE: Final = "select deviceID, avg(temp) as avgT group by deviceID insert into Out;"
_FIVE: Final = (
    "select deviceID, avg(temp) as avgT, min(temp) as minT, max(temp) as maxT, sum(temp) as sumT, "
    "count() as n group by deviceID insert into Out;"
)
_AGGREGATED: Final = (
    "select deviceID, avg(temp) as avgT, min(temp) as minT, max(temp) as maxT, sum(roomNo) as s "
    "group by deviceID aggregate"
)
_NO_OUTPUT: Final = "from TempStream[temp > 100.0] select deviceID insert into Out;"
_RISE: Final = "select e1.deviceID as deviceID, e1.temp as t1, e2.temp as t2 insert into Out;"


@dataclass(frozen=True, slots=True)
class Measured:
    """An app and its targets: times the engine's rate, by number of keys."""

    name: str
    app: str
    targets: dict[int, float]

    @property
    def has_time(self) -> bool:
        """Whether its events carry a time as an attribute."""
        return "ts long" in self.app


def _both(target: float) -> dict[int, float]:
    return {100: target, 10_000: target}


_WINDOWED: Final = {100: 1.0, 10_000: 2.0}

MEASURED: Final = (
    Measured(
        "filter and projection",
        _STREAM
        + "from TempStream[temp > 30.0] "
        + "select deviceID, roomNo, temp * 9.0 / 5.0 + 32.0 as tempF insert into Out;",
        _both(1.0),
    ),
    Measured(
        "length window, avg by key",
        f"{_STREAM}from TempStream#window.length(100) {_AVERAGE}",
        _WINDOWED,
    ),
    Measured(
        "time window, avg by key",
        f"{_PLAYED}{_STREAM}from TempStream#window.time(1 sec) {_AVERAGE}",
        _WINDOWED,
    ),
    Measured(
        "externalTime, avg by key",
        f"{_WITH_TIME}from TempStream#window.externalTime(ts, 1 sec) {_AVERAGE}",
        _WINDOWED,
    ),
    Measured(
        "lengthBatch, five aggregates",
        f"{_STREAM}from TempStream#window.lengthBatch(1000) {_FIVE}",
        _both(2.0),
    ),
    Measured(
        "timeBatch, five aggregates",
        f"{_PLAYED}{_STREAM}from TempStream#window.timeBatch(1 sec) {_FIVE}",
        _both(2.0),
    ),
    Measured(
        "aggregation, five base values",
        f"{_STREAM}define aggregation A from TempStream {_AGGREGATED} every sec...year; "
        f"{_NO_OUTPUT}",
        # With 10,000 keys and 1000 events a second of the clock an event is a bucket of its own.
        {100: 3.5, 10_000: 4.0},
    ),
    Measured(
        "aggregation by times over an hour, five base values",
        f"{_WITH_TIME}define stream Spread (deviceID long, roomNo int, temp double, ts long); "
        f"define aggregation A from Spread {_AGGREGATED} by ts every sec...year; "
        "from TempStream select deviceID, roomNo, temp, ts - roomNo * 180000L as ts "
        f"insert into Spread; {_NO_OUTPUT}",
        _both(2.5),
    ),
    Measured(
        "partition, length window",
        f"{_STREAM}partition with (deviceID of TempStream) begin from "
        "TempStream#window.length(100) select deviceID, avg(temp) as avgT insert into Out; end;",
        _both(2.0),
    ),
    Measured(
        "pattern",
        f"{_PLAYED}{_STREAM}from every e1=TempStream -> e2=TempStream[e1.deviceID == deviceID "
        f"and e1.temp + 5 <= temp] within 10 sec {_RISE}",
        _both(100.0),
    ),
    Measured(
        "pattern in a partition",
        f"{_PLAYED}{_STREAM}partition with (deviceID of TempStream) begin from every e1=TempStream "
        f"-> e2=TempStream[e1.temp + 5 <= temp] within 10 sec {_RISE} end;",
        _both(5.0),
    ),
    Measured(
        "sequence",
        f"{_PLAYED}{_STREAM}from every e1=TempStream, e2=TempStream[temp > e1.temp] {_RISE}",
        _both(2.0),
    ),
    Measured(
        "absent pattern",
        f"{_PLAYED}{_STREAM}from every e1=TempStream[temp > 34.0] -> "
        "not TempStream[e1.deviceID == deviceID] for 100 milliseconds "
        "select e1.deviceID as deviceID, e1.temp as t1 insert into Out;",
        _both(2.0),
    ),
    Measured(
        "count pattern",
        f"{_PLAYED}{_STREAM}from every e1=TempStream[temp > 34.0]<3:5> -> "
        "e2=TempStream[temp < 21.0] within 1 sec "
        "select e1[0].deviceID as deviceID, e1[last].temp as t1, e2.temp as t2 insert into Out;",
        _both(2.0),
    ),
    Measured(
        "join of two time windows on a key",
        f"{_PLAYED}{_STREAM}from TempStream[roomNo < 10]#window.time(1 sec) as a "
        "join TempStream[roomNo >= 10]#window.time(1 sec) as b on a.deviceID == b.deviceID "
        "select a.deviceID as deviceID, a.temp as t1, b.temp as t2 insert into Out;",
        _both(2.0),
    ),
    Measured(
        "output snapshot of a time window",
        f"{_PLAYED}{_STREAM}from TempStream#window.time(1 sec) "
        "select deviceID, avg(temp) as avgT group by deviceID "
        "output snapshot every 1 sec insert into Out;",
        _both(1.0),
    ),
    Measured(
        "session window by key",
        f"{_PLAYED}{_STREAM}from TempStream select convert(deviceID, 'string') as device, temp "
        "insert into Temps; from Temps#window.session(1 sec, device) "
        "select device, avg(temp) as avgT group by device insert all events into Out;",
        # The engine checks all sessions for each event.
        {100: 0.5, 10_000: 5.0},
    ),
    Measured(
        "table updated and joined by key",
        f"{_STREAM}@PrimaryKey('deviceID') define table T (deviceID long, temp double); "
        "from TempStream select deviceID, temp update or insert into T on T.deviceID == deviceID; "
        "from TempStream join T on TempStream.deviceID == T.deviceID "
        "select TempStream.deviceID as deviceID, T.temp as t insert into Out;",
        # A batch ends where a key repeats.
        {100: 0.01, 10_000: 0.12},
    ),
    Measured(
        "duplicates removed by a table",
        f"{_STREAM}@PrimaryKey('deviceID') define table T (deviceID long, temp double); "
        "from TempStream[not (T.deviceID == deviceID in T)] select deviceID, temp insert into T; "
        "from TempStream[temp > 100.0] select deviceID insert into Out;",
        {100: 0.04, 10_000: 0.35},
    ),
)
