"""Sinks that fail at an event without a word on outages: the event is found, and recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.connect.contract import FailedRecordsError, RefusedRecordsError, UnavailableError
from mesh.receiver.outcomes import TRIES, TRIES_ALONE, Search, Step, is_outage, outcomes_of
from mesh.receiver.sinks import RoundRobin
from tests.support.connectors import staged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.connect.contract import Context, Record
    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

APP = """@App:name('Out')
define stream S (n int);
@sink(type='log', OPTIONS @map(type='json', envelope='none'))
define stream T (n int);
from S select n insert into T;
"""
BAD = 5


class Words:
    """The other side: what was written, and how often a sink was opened."""

    def __init__(self, *, fails: Exception | None = None) -> None:
        self.written: list[int] = []
        self.opened = self.writes = 0
        self.fails = fails or ZeroDivisionError("five is no number")


class PlainSink:
    """Writes all records, or fails before the first one."""

    state: Mapping[str, Any] | None = None

    def __init__(self, words: Words) -> None:
        self.words = words

    async def open(self, context: Context, state: Mapping[str, Any] | None) -> None:
        self.words.opened += 1

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        numbers = [orjson.loads(record.payload)["n"] for record in records]
        self.words.writes += 1
        if BAD in numbers:
            raise self.words.fails
        self.add(numbers, records)
        return [None] * len(records)

    def add(self, numbers: list[int], records: Sequence[Record]) -> None:
        self.words.written += numbers

    async def close(self) -> None:
        """Nothing is open."""


class SingleSink(PlainSink):
    """Writes records one by one, and says which ones it has written."""

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        found: list[Any] = []
        for record in records:
            number = orjson.loads(record.payload)["n"]
            found.append(self.words.fails if number == BAD else None)
            if number != BAD:
                self.words.written.append(number)
        return outcomes_of(found)


class StateSink(PlainSink):
    """Undoes what was written after its stored state."""

    def __init__(self, words: Words) -> None:
        super().__init__(words)
        self.state = {"count": 0}

    async def open(self, context: Context, state: Mapping[str, Any] | None) -> None:
        await super().open(context, state)
        self.state = {"count": (state or {"count": 0})["count"]}
        del self.words.written[self.state["count"] :]

    def add(self, numbers: list[int], records: Sequence[Record]) -> None:
        super().add(numbers, records)
        self.state = {"count": len(self.words.written)}


class PositionSink(PlainSink):
    """Stores its position with the records."""

    def __init__(self, words: Words) -> None:
        super().__init__(words)
        self.position: int | None = None

    def add(self, numbers: list[int], records: Sequence[Record]) -> None:
        super().add(numbers, records)
        self.position = max(records[-1].sequence, self.position or 0)


async def publish(stage: Stage, *numbers: int) -> None:
    """Publish the events of one message."""
    lines = b"\n".join(b'{"n":%d}' % number for number in numbers)
    await stage.js.publish("mesh.Out.T", lines)


@pytest.mark.sampled(3)
@pytest.mark.nats
@pytest.mark.parametrize("kind", [PlainSink, SingleSink, StateSink, PositionSink])
@pytest.mark.parametrize(
    "messages",
    [
        [[5], [1], [2]],
        [[1, 2, 3, 4, 5, 6, 7]],
        [[1, 2], [3, 5, 4], [6]],
        [[1], [2], [3], [4], [5], [6], [7]],
    ],
    ids=["alone-at-first", "in-a-message", "in-one-of-messages", "one-of-messages"],
)
async def test_the_event_is_recorded_and_the_others_are_written_once(
    nats_server: NatsServer, kind: type[PlainSink], messages: list[list[int]]
) -> None:
    words = Words()
    async with staged(nats_server, APP.replace("OPTIONS", "")) as stage:
        stage.environment = replace(stage.environment, make=lambda _: kind(words))
        for numbers in messages:
            await publish(stage, *numbers)
        instance = stage.start("sink-T")
        good = [n for numbers in messages for n in numbers if n != BAD]
        await stage.until("the good ones", lambda: sorted(words.written) == good)
        (entry,) = await stage.until("the bad one", stage.errors)
        assert "ZeroDivisionError: five is no number" in entry["reason"]
        assert (entry["event"], entry["connector"]) == ('{"n":5}', "sink log")
        await publish(stage, 8)
        await stage.until("the next one", lambda: 8 in words.written)
        assert words.written == [*good, 8]
        assert await stage.errors() == [entry]
        await stage.until("counts", lambda: instance.status().events_out == len(good) + 1)
        await instance.stop()
        # A successor continues behind all of them.
        await publish(stage, 9)
        stage.start("sink-T", epoch=2)
        await stage.until("the last one", lambda: 9 in words.written)
        if kind is not PositionSink:
            assert words.written == [*good, 8, 9]


@pytest.mark.slow
@pytest.mark.nats
async def test_a_lost_connection_is_waited_for_however_long_it_takes(
    nats_server: NatsServer,
) -> None:
    words = Words(fails=ConnectionResetError("the cable is out"))
    async with staged(nats_server, APP.replace("OPTIONS", "")) as stage:
        stage.environment = replace(stage.environment, make=lambda _: PlainSink(words))
        await publish(stage, 1, 5)
        stage.start("sink-T")
        await stage.until("many attempts", lambda: words.writes > 3 * TRIES_ALONE)
        assert await stage.errors() == []
        assert words.written == []


@pytest.mark.nats
async def test_outcomes_that_are_too_few_are_a_failure(nats_server: NatsServer) -> None:
    class Forgetful(PlainSink):
        async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
            return []

    async with staged(nats_server, APP.replace("OPTIONS", "")) as stage:
        stage.environment = replace(stage.environment, make=lambda _: Forgetful(Words()))
        await publish(stage, 1)
        stage.start("sink-T")
        (entry,) = await stage.until("the entry", stage.errors)
        assert "0 outcomes for 1 records" in entry["reason"]


@pytest.mark.nats
@pytest.mark.parametrize("action", ["LOG", "WAIT"])
async def test_what_is_done_while_it_is_away_has_no_part_in_it(
    nats_server: NatsServer, action: str
) -> None:
    words = Words()
    text = APP.replace("OPTIONS", f"on.error='{action}',")
    async with staged(nats_server, text) as stage:
        stage.environment = replace(stage.environment, make=lambda _: PlainSink(words))
        await publish(stage, 1, 5, 2)
        stage.start("sink-T")
        await stage.until("the good ones", lambda: words.written == [1, 2])
        (entry,) = await stage.until("the bad one", stage.errors)
        assert "five is no number" in entry["reason"]


def test_records_are_divided_after_some_attempts_and_one_alone_is_refused() -> None:
    search = Search()
    steps = [search.step(8, written=False) for _ in range(TRIES)]
    assert steps == [*[Step.AGAIN] * (TRIES - 1), Step.DIVIDE]
    assert search.step(4, written=False) is Step.DIVIDE
    # Nothing says yet that the other side works.
    alone = [search.step(1, written=False) for _ in range(TRIES_ALONE)]
    assert alone == [*[Step.AGAIN] * (TRIES_ALONE - 1), Step.REFUSE]
    search.written()
    assert search.step(1, written=False) is Step.REFUSE


def test_outages_are_told_from_failures_of_records() -> None:
    for error in (
        UnavailableError("x"), ConnectionRefusedError(), TimeoutError(), EOFError(),
        OSError(28, "No space left on device"),
    ):  # fmt: skip
        assert is_outage(error)
    for other in (
        ValueError("x"), KeyError("x"), RefusedRecordsError({0: "x"}),
        OSError(36, "File name too long"), UnicodeEncodeError("utf-8", "\udc00", 0, 1, "x"),
    ):  # fmt: skip
        assert not is_outage(other)


def test_outcomes_side_by_side() -> None:
    assert outcomes_of([None, "no", None]) == [None, "no", None]
    with pytest.raises(UnavailableError, match="away") as away:
        outcomes_of([None, UnavailableError("away", retry_after_s=3), "no", ValueError()])
    assert (away.value.outcomes, away.value.retry_after_s) == ({0: None, 2: "no"}, 3)
    with pytest.raises(FailedRecordsError, match="ValueError: odd") as odd:
        outcomes_of([None, ValueError("odd")])
    assert odd.value.outcomes == {0: None}


async def test_destinations_that_take_turns_keep_the_outcomes_of_each() -> None:
    class Atomic(PlainSink):
        async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
            numbers = [orjson.loads(record.payload)["n"] for record in records]
            if BAD in numbers:
                raise RefusedRecordsError({numbers.index(BAD): "five"})
            self.words.written += numbers
            return [None] * len(records)

    from mesh.connect.contract import Context, Record

    words = Words()
    context = Context("a", "s", {})
    sink = RoundRobin([Atomic(words)], [context])
    await sink.open(context, None)
    records = [Record(f"k{n}", b'{"n":%d}' % n) for n in (1, 5, 2)]
    assert await sink.write(records) == [None, "five", None]
    assert words.written == [1, 2]
    failing = RoundRobin([SingleSink(words)], [context])
    with pytest.raises(FailedRecordsError) as error:
        await failing.write(records)
    assert error.value.outcomes == {0: None, 2: None}
